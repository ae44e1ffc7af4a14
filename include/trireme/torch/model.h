#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/export.h"

// Data-parallel training: every rank has the same module and its own batches, and backward() averages the gradients of
// all ranks while it computes them. The modules stay bitwise identical on all ranks.

namespace trireme::torch {

struct ModelOptions {
  bool move_to_device = true;  // to get_device()
  // For modules that do not use all parameters in every step; the unused ones may differ between ranks. Such a module
  // must be called through Model::forward() and return tensors. Costs a traversal of the graph per step.
  bool find_unused_parameters = false;
  // Copies the buffers (running means and similar) of rank 0 to all ranks after every backward() that averages; with
  // find_unused_parameters, before every forward pass.
  bool broadcast_buffers = true;
  // The size of a transfer. The first one is smaller, so that sending starts early in the backward pass.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  double timeout_s = 1800;  // time limit of a transfer
};

namespace detail {

// One rank's copy of a module that all ranks train: the part that is not a template.
class TRIREME_API Replica {
 public:
  Replica(::torch::nn::Module& module, const ModelOptions& options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  void begin_forward();
  // Whether end_forward() needs the outputs.
  bool follows_outputs() const;
  void end_forward(const std::vector<at::Tensor>& outputs);

  bool averages() const;
  void set_averages(bool averages);

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with a running backward pass
};

template <typename T>
concept TupleLike = requires {
  std::tuple_size<std::remove_cvref_t<T>>::value;
};
template <typename T>
concept Convertible = std::convertible_to<const T&, at::Tensor>;

TRIREME_API void refuse_outputs(const char* type);

// The tensors in the result of forward().
template <typename T>
void collect(const T& output, std::vector<at::Tensor>& into) {
  if constexpr (Convertible<T>) {
    into.push_back(output);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](const auto&... each) { (collect(each, into), ...); }, output);
  } else if constexpr (requires { output.begin(), output.end(); }) {
    for (const auto& each : output) collect(each, into);
  } else {
    refuse_outputs(typeid(T).name());
  }
}

}  // namespace detail

// During its lifetime, backward() accumulates the gradients of this rank without communication.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(std::shared_ptr<detail::Replica> replica)
      : replica_(std::move(replica)), before_(replica_->averages()) {
    replica_->set_averages(false);
  }
  ~NoSync() { replica_->set_averages(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<detail::Replica> replica_;
  bool before_;
};

// A module whose gradients are averaged. Copies are handles to the same module.
template <typename Module>
class Model {
 public:
  Model(std::shared_ptr<Module> module, const ModelOptions& options)
      : module_(std::move(module)), replica_(std::make_shared<detail::Replica>(*module_, options)) {}

  template <typename... Arguments>
  auto forward(Arguments&&... arguments) const {
    replica_->begin_forward();
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
    if (replica_->follows_outputs()) {
      std::vector<at::Tensor> tensors;
      detail::collect(output, tensors);
      replica_->end_forward(tensors);
    }
    return output;
  }
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) const {
    return forward(std::forward<Arguments>(arguments)...);
  }

  // For gradient accumulation: hold it during all but the last backward().
  NoSync no_sync() const { return NoSync(replica_); }

  Module* operator->() const { return module_.get(); }
  Module& operator*() const { return *module_; }
  operator Module&() const { return *module_; }
  const std::shared_ptr<Module>& module() const { return module_; }

 private:
  std::shared_ptr<Module> module_;            // shared with the user, like all libtorch modules
  std::shared_ptr<detail::Replica> replica_;  // shared by copies
};

// Moves the module to the device of this worker, copies the parameters and buffers of rank 0 to it, and averages its
// gradients from then on. With one rank it only moves the module. Every rank must call it, with modules that have the
// same parameters. Create the optimizer after it. Throws std::invalid_argument if the module has nothing to train, is
// already prepared, or differs from that of rank 0.
template <std::derived_from<::torch::nn::Module> Module>
Model<Module> prepare_model(std::shared_ptr<Module> module, const ModelOptions& options = {}) {
  return Model<Module>(std::move(module), options);
}
// The same for the holders that TORCH_MODULE(Net) defines.
template <typename Module>
Model<Module> prepare_model(const ::torch::nn::ModuleHolder<Module>& module, const ModelOptions& options = {}) {
  return Model<Module>(module.ptr(), options);
}

}  // namespace trireme::torch
