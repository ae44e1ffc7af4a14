#include "trireme/torch/model.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

#include "cancel.h"
#include "expect_training.h"
#include "trireme/torch/torch.h"

// c10d::Reducer, on which Python's DistributedDataParallel is built, changes between versions of libtorch: only this
// file uses it.

namespace trireme::torch::detail {
namespace {

namespace autograd = ::torch::autograd;

struct Named {
  std::string name;
  at::Tensor tensor;
};

// Each parameter once, even if a module registers it under two names.
std::vector<Named> parameters_of(const ::torch::nn::Module& module) {
  std::vector<Named> found;
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      found.push_back({item.key(), item.value()});
    }
  }
  return found;
}

std::vector<Named> buffers_of(const ::torch::nn::Module& module) {
  std::vector<Named> found;
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) found.push_back({item.key(), item.value()});
  }
  return found;
}

std::vector<at::Tensor> tensors_of(const std::vector<Named>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& each : named) tensors.push_back(each.tensor.detach());
  return tensors;
}

std::string quoted(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "\"" : ", \"") + names[i] + "\"";
  if (names.size() > kShown) text += c10::str(" and ", names.size() - kShown, " more");
  return text;
}

// "Float[2, 3]" and whether it is trained; must be the same on all ranks.
std::string describe(const Named& named) {
  std::ostringstream text;
  text << c10::toString(named.tensor.scalar_type()) << named.tensor.sizes();
  return text.str() + (named.tensor.requires_grad() ? "" : " without gradient");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Gloo and NCCL would silently exchange tensors of different sizes, or hang.
void expect_module_of_rank_zero(const std::vector<Named>& parameters, const std::vector<Named>& buffers) {
  std::string mine;
  for (const auto& each : parameters) mine += each.name + "\n" + describe(each) + "\n";
  for (const auto& each : buffers) mine += each.name + "\n" + describe(each) + "\n";
  const std::string theirs = collective::broadcast_from_rank_zero(mine);
  if (mine == theirs) return;
  const auto here = lines_of(mine), there = lines_of(theirs);
  std::size_t i = 0;
  while (i < std::min(here.size(), there.size()) && here[i] == there[i]) ++i;
  i -= i % 2;
  const auto told = [i](const std::vector<std::string>& lines, int rank) {
    return i < lines.size() ? c10::str("\"", lines[i], "\" ", lines[i + 1], " on rank ", rank)
                            : c10::str("none on rank ", rank);
  };
  throw std::invalid_argument(c10::str("prepare_model(): the ranks have different modules: ", told(there, 0), " and ",
                                       told(here, context().world_rank), "; build the same module on every rank"));
}

// Embeddings with sparse gradients: the Reducer needs to know them in advance.
std::vector<bool> sparse_ones(::torch::nn::Module& module, const std::vector<Named>& parameters) {
  std::unordered_set<const void*> sparse;
  for (const auto& each : module.modules()) {
    if (const auto* one = each->as<::torch::nn::EmbeddingImpl>(); one && one->options.sparse()) {
      sparse.insert(one->weight.unsafeGetTensorImpl());
    } else if (const auto* bag = each->as<::torch::nn::EmbeddingBagImpl>(); bag && bag->options.sparse()) {
      sparse.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  std::vector<bool> found;
  for (const auto& each : parameters) found.push_back(sparse.contains(each.tensor.unsafeGetTensorImpl()));
  return found;
}

}  // namespace

class Replica::State : public std::enable_shared_from_this<Replica::State> {
 public:
  State(::torch::nn::Module& module, const ModelOptions& options) : options_(options) {
    const auto all = parameters_of(module);
    for (const auto& each : all) {
      if (each.tensor.requires_grad()) trained_.push_back(each);
    }
    if (all.empty()) {
      throw std::invalid_argument(
          c10::str("prepare_model(): the module ", module.name(),
                   " has no parameters: register its parts with register_module() or register_parameter()"));
    }
    if (trained_.empty()) {
      throw std::invalid_argument(c10::str("prepare_model(): none of the ", all.size(), " parameters of ",
                                           module.name(), " requires a gradient: there is nothing to train"));
    }
    expect_not_prepared();
    detail::clear_on_interrupt(get_device());
    if (context().world_size == 1) return;
    const auto buffers = buffers_of(module);
    expect_module_of_rank_zero(all, buffers);
    group_ = new_process_group({.timeout_s = options.timeout_s});
    buffers_ = tensors_of(buffers);
    broadcast(tensors_of(all));
    broadcast(buffers_);
    make_reducer(module);
  }

  // After the constructor: the hooks refer to this object.
  void add_hooks() {
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      accumulators_.push_back(autograd::impl::grad_accumulator(trained_[i].tensor));
      accumulators_.back()->add_pre_hook(std::make_unique<Hook>(weak_from_this(), i));
    }
  }

  bool alone() const { return reducer_ == nullptr; }
  bool follows_outputs() const {
    return !alone() && options_.find_unused_parameters && averages && at::GradMode::is_enabled();
  }
  void begin_forward() {
    // Not after the backward pass: with different unused parameters per rank, the backward pass of one rank may end
    // before another rank has sent all its buckets.
    if (follows_outputs() && options_.broadcast_buffers) broadcast(buffers_);
  }
  void end_forward(const std::vector<at::Tensor>& outputs) {
    const std::lock_guard lock(mutex_);
    prepare(outputs);
  }

  std::atomic<bool> averages = true;

 private:
  // A hook on the node that accumulates a parameter's gradient, which runs in backward() but not in autograd::grad().
  // It runs before the accumulation, which the Reducer waits for.
  class Hook final : public autograd::FunctionPreHook {
   public:
    Hook(std::weak_ptr<State> state, std::size_t index) : state_(std::move(state)), index_(index) {}
    autograd::variable_list operator()(const autograd::variable_list& gradients) override {
      if (const auto state = state_.lock()) state->gradient_arrives(index_);
      return gradients;
    }
    bool in_use() const { return !state_.expired(); }

   private:
    std::weak_ptr<State> state_;
    std::size_t index_;
  };

  void expect_not_prepared() const {
    for (const auto& each : trained_) {
      for (const auto& hook : autograd::impl::grad_accumulator(each.tensor)->pre_hooks()) {
        const auto* ours = dynamic_cast<const Hook*>(hook.get());
        if (ours == nullptr || !ours->in_use()) continue;
        throw std::invalid_argument(
            c10::str("prepare_model(): the module is already prepared (parameter \"", each.name,
                     "\"): its gradients would be averaged twice; keep the model that the first call returned"));
      }
    }
  }

  void broadcast(const std::vector<at::Tensor>& tensors) const {
    if (tensors.empty()) return;
    const at::NoGradGuard no_grad;
    c10d::broadcast_coalesced(group_, tensors, static_cast<std::size_t>(options_.bucket_bytes));
  }

  void make_reducer(::torch::nn::Module& module) {
    std::vector<at::Tensor> tensors;
    std::unordered_map<std::size_t, std::string> names;
    for (const auto& each : trained_) {
      names[tensors.size()] = each.name;
      tensors.push_back(each.tensor);
    }
    const auto sparse = sparse_ones(module, trained_);
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
        tensors,
        {static_cast<std::size_t>(options_.first_bucket_bytes), static_cast<std::size_t>(options_.bucket_bytes)},
        sparse);
    // Gradients are computed in the reverse order of the parameters.
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_shared<c10d::Reducer>(
        tensors, buckets, group_, sparse, options_.bucket_bytes, options_.find_unused_parameters,
        /*gradient_as_bucket_view=*/false,  // with views Optimizer::zero_grad() throws
        names, options_.first_bucket_bytes, /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
        std::vector<std::int64_t>{});
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
  }

  // Makes the Reducer wait for the gradient of every parameter that the outputs depend on; of every parameter if there
  // are no outputs. Every rank calls it at the same point of its step.
  void prepare(const std::vector<at::Tensor>& outputs) {
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();
    reducer_->prepare_for_backward(outputs);
    arrived_.assign(trained_.size(), false);
    num_arrived_ = 0;
    prepared_ = true;
  }

  // The first gradient marks the start of a backward pass. The forward pass need not be intercepted, so any method of
  // the module may be called.
  void gradient_arrives(std::size_t index) {
    if (alone() || !averages) return;
    const std::lock_guard lock(mutex_);
    if (!prepared_) {
      if (options_.find_unused_parameters) {
        throw std::logic_error(
            "with find_unused_parameters, the forward pass must use the prepared model: call model.forward(x) or "
            "model(x), not model->forward(x), once before every backward()");
      }
      prepare({});
    }
    if (arrived_[index]) refuse_second(index);
    arrived_[index] = true;
    ++num_arrived_;
    if (waiting_) return;
    waiting_ = true;
    autograd::Engine::get_default_engine().queue_callback([self = shared_from_this()] { self->backward_ends(); });
  }

  void backward_ends() {
    const std::lock_guard lock(mutex_);
    waiting_ = false;
    // If gradients are missing, another backward() of the same step may provide them.
    if (options_.find_unused_parameters || num_arrived_ < trained_.size()) return;
    prepared_ = false;
    if (options_.broadcast_buffers) broadcast(buffers_);
  }

  [[noreturn]] void refuse_second(std::size_t index) const {
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      if (!arrived_[i]) missing.push_back(trained_[i].name);
    }
    if (options_.find_unused_parameters) {
      throw std::logic_error(c10::str("parameter \"", trained_[index].name,
                                      "\" got a second gradient after one forward pass: call model.forward(x) before "
                                      "every backward(), or hold model.no_sync() during all but the last backward()"));
    }
    throw std::logic_error(
        c10::str("parameter \"", trained_[index].name, "\" got a second gradient, but ", quoted(missing),
                 " got none: the previous step did not use ", missing.size() == 1 ? "it" : "them",
                 ", so its gradients were not averaged; set find_unused_parameters, or requires_grad_(false) for "
                 "parameters that are never used"));
  }

  const ModelOptions options_;
  std::vector<Named> trained_;
  std::vector<at::Tensor> buffers_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  // A parameter does not own its node. Keeping the nodes alive keeps our hooks.
  std::vector<decltype(autograd::impl::grad_accumulator(at::Tensor()))> accumulators_;
  std::shared_ptr<c10d::Reducer> reducer_;  // shared with the logger, which refers to it
  std::shared_ptr<c10d::Logger> logger_;

  // State of the current backward pass. libtorch calls the hooks from one thread per device.
  std::mutex mutex_;
  bool prepared_ = false;
  bool waiting_ = false;  // for the end of the backward pass
  std::vector<bool> arrived_;
  std::size_t num_arrived_ = 0;
};

Replica::Replica(::torch::nn::Module& module, const ModelOptions& options) {
  expect_training("prepare_model");
  if (options.move_to_device) module.to(get_device());
  state_ = std::make_shared<State>(module, options);
  state_->add_hooks();
}

Replica::~Replica() = default;
void Replica::begin_forward() { state_->begin_forward(); }
bool Replica::follows_outputs() const { return state_->follows_outputs(); }
void Replica::end_forward(const std::vector<at::Tensor>& outputs) { state_->end_forward(outputs); }
bool Replica::averages() const { return state_->averages; }
void Replica::set_averages(bool averages) { state_->averages = averages; }

void refuse_outputs(const char* type) {
  throw std::invalid_argument(c10::str(
      "with find_unused_parameters, forward() must return tensors, or tuples or vectors of tensors, not ", type));
}

}  // namespace trireme::torch::detail
