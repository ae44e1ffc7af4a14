#include "optimizer_state.h"

#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>

#include "device_bytes.h"
#include "lbfgs_state.h"
#include "stored_values.h"

// Each optimizer has a list of its options and a list of its state per parameter, under their names in Python. Writing,
// reading and checking use these lists.

namespace trireme::torch::detail {
namespace {

namespace optim = ::torch::optim;

Value tuple(double first, double second) { return Dict{{"$tuple", List{first, second}}}; }

// The elements of a list, a tuple, or a dict with numbers as keys; the state format tags the last two.
const List& elements(const Value& value, std::string_view kind) {
  if (const auto* dict = value.get_if<Dict>()) return dict->at(kind).as_list();
  return value.as_list();
}

class Writer {
 public:
  explicit Writer(Dict& into) : into_(into) {}
  void operator()(const char* name, const double& value) { into_[name] = value; }
  void operator()(const char* name, const bool& value) { into_[name] = value; }
  void operator()(const char* name, const std::tuple<double, double>& value) {
    into_[name] = tuple(std::get<0>(value), std::get<1>(value));
  }
  // A tensor in Python.
  void operator()(const char* name, const std::int64_t& steps) {
    into_[name] = Tensor::scalar(static_cast<float>(steps));
  }
  void operator()(const char* name, const at::Tensor& tensor) {
    if (tensor.defined()) into_[name] = state_tensor(tensor);
  }

 private:
  Dict& into_;
};

class Reader {
 public:
  Reader(const Dict& from, std::string place, at::Tensor parameter = {})
      : from_(from), place_(std::move(place)), parameter_(std::move(parameter)) {}

  void operator()(const char* name, double& value) const { value = stored_number(need(name)); }
  void operator()(const char* name, bool& value) const { value = need(name).as_bool(); }
  void operator()(const char* name, std::tuple<double, double>& value) const {
    const List& pair = elements(need(name), "$tuple");
    value = {stored_number(pair.at(0)), stored_number(pair.at(1))};
  }
  void operator()(const char* name, std::int64_t& steps) const {
    steps = static_cast<std::int64_t>(stored_number(need(name)));
  }
  void operator()(const char* name, at::Tensor& tensor) const {
    const Value* found = from_.find(name);
    if (found == nullptr || found->is_null()) return;  // present only with some options
    const Tensor& stored = found->as_tensor();
    if (stored.shape() != parameter_.sizes().vec()) {
      throw ValueError(place_ + "/" + name + " is " + stored.describe() +
                       " in the checkpoint; the parameter has the shape " + c10::str(parameter_.sizes()));
    }
    // Copies, because the stored tensor may be a view of a file.
    tensor = to_torch(stored).to(parameter_.options(), /*non_blocking=*/false, /*copy=*/true);
  }

 private:
  const Value& need(const char* name) const { return stored_value(from_, place_, name); }

  const Dict& from_;
  std::string place_;
  at::Tensor parameter_;
};

// Options that libtorch's optimizers lack: the value that Python writes and that a checkpoint must have.
struct Fixed {
  const char* name;
  Value value;
};
const Fixed kMaximize{"maximize", false}, kForeach{"foreach", nullptr}, kFused{"fused", nullptr},
    kCapturable{"capturable", false}, kDifferentiable{"differentiable", false};

struct Sgd {
  using Options = optim::SGDOptions;
  using State = optim::SGDParamState;
  static constexpr const char* kName = "SGD";
  static std::vector<Fixed> fixed() { return {kMaximize, kForeach, kDifferentiable, kFused}; }
  template <typename Visit>
  static void options(Options& o, Visit visit) {
    visit("lr", o.lr());
    visit("momentum", o.momentum());
    visit("dampening", o.dampening());
    visit("weight_decay", o.weight_decay());
    visit("nesterov", o.nesterov());
  }
  template <typename Visit>
  static void state(State& s, Visit visit) {
    visit("momentum_buffer", s.momentum_buffer());
  }
  // step() reads it if there is a state.
  static bool complete(State& s) { return s.momentum_buffer().defined(); }
};

template <typename AdamOptions, typename AdamState, bool kDecoupled>
struct AdamLike {
  using Options = AdamOptions;
  using State = AdamState;
  static constexpr const char* kName = kDecoupled ? "AdamW" : "Adam";
  static std::vector<Fixed> fixed() {
    return {kMaximize, kForeach, kCapturable, kDifferentiable, kFused, {"decoupled_weight_decay", kDecoupled}};
  }
  template <typename Visit>
  static void options(Options& o, Visit visit) {
    visit("lr", o.lr());
    visit("betas", o.betas());
    visit("eps", o.eps());
    visit("weight_decay", o.weight_decay());
    visit("amsgrad", o.amsgrad());
  }
  template <typename Visit>
  static void state(State& s, Visit visit) {
    visit("step", s.step());
    visit("exp_avg", s.exp_avg());
    visit("exp_avg_sq", s.exp_avg_sq());
    visit("max_exp_avg_sq", s.max_exp_avg_sq());
  }
  static bool complete(State& s) { return s.exp_avg().defined() && s.exp_avg_sq().defined(); }
};
using Adam = AdamLike<optim::AdamOptions, optim::AdamParamState, false>;
using AdamW = AdamLike<optim::AdamWOptions, optim::AdamWParamState, true>;

struct RmsProp {
  using Options = optim::RMSpropOptions;
  using State = optim::RMSpropParamState;
  static constexpr const char* kName = "RMSprop";
  static std::vector<Fixed> fixed() { return {kCapturable, kForeach, kMaximize, kDifferentiable}; }
  template <typename Visit>
  static void options(Options& o, Visit visit) {
    visit("lr", o.lr());
    visit("momentum", o.momentum());
    visit("alpha", o.alpha());
    visit("eps", o.eps());
    visit("centered", o.centered());
    visit("weight_decay", o.weight_decay());
  }
  template <typename Visit>
  static void state(State& s, Visit visit) {
    visit("step", s.step());
    visit("square_avg", s.square_avg());
    visit("momentum_buffer", s.momentum_buffer());
    visit("grad_avg", s.grad_avg());
  }
  static bool complete(State& s) { return s.square_avg().defined(); }
};

struct AdaGrad {
  using Options = optim::AdagradOptions;
  using State = optim::AdagradParamState;
  static constexpr const char* kName = "Adagrad";
  static std::vector<Fixed> fixed() { return {kForeach, kMaximize, kDifferentiable, kFused}; }
  template <typename Visit>
  static void options(Options& o, Visit visit) {
    visit("lr", o.lr());
    visit("lr_decay", o.lr_decay());
    visit("eps", o.eps());
    visit("weight_decay", o.weight_decay());
    visit("initial_accumulator_value", o.initial_accumulator_value());
  }
  template <typename Visit>
  static void state(State& s, Visit visit) {
    visit("step", s.step());
    visit("sum", s.sum());
  }
  static bool complete(State& s) { return s.sum().defined(); }
};

// libtorch's getters of mutable members are not const.
template <typename To, typename From>
To& as(const From& from) {
  return const_cast<To&>(static_cast<const To&>(from));
}

std::string place_of(std::size_t index) { return "optimizer/state/" + std::to_string(index); }

template <typename Kind>
Dict write(const optim::Optimizer& optimizer) {
  List states, groups;
  std::size_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    Dict written;
    Kind::options(as<typename Kind::Options>(group.options()), Writer(written));
    for (const auto& [name, value] : Kind::fixed()) written.append(name, value);
    List indices;
    for (const auto& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) {
        Dict state;
        Kind::state(as<typename Kind::State>(*found->second), Writer(state));
        states.push_back(List{index, std::move(state)});
      }
      indices.emplace_back(index++);
    }
    written.append("params", std::move(indices));
    groups.emplace_back(std::move(written));
  }
  return {{"state", Dict{{"$dict", std::move(states)}}}, {"param_groups", std::move(groups)}};
}

void expect_fixed(const Dict& group, const Fixed& fixed, const char* optimizer, const std::string& place) {
  const Value* found = group.find(fixed.name);
  // The choice of kernels, and None instead of false, do not matter here.
  const auto* wanted = fixed.value.get_if<bool>();
  if (found == nullptr || wanted == nullptr || found->get_if<bool>() == nullptr || found->as_bool() == *wanted) return;
  if (std::string_view(fixed.name) == "capturable" || std::string_view(fixed.name) == "differentiable") return;
  throw ValueError(place + "/" + fixed.name + " is " + (*wanted ? "false" : "true") +
                   " in the checkpoint, which libtorch's " + optimizer + " does not support");
}

// Python's {0: {...}, 1: {...}}, keyed by the index of the parameter.
std::vector<const Dict*> states_by_index(const Value& value, std::size_t count) {
  std::vector<const Dict*> found(count, nullptr);
  const auto* dict = value.get_if<Dict>();
  if (dict != nullptr && dict->empty()) return found;
  for (const Value& item : elements(value, "$dict")) {
    const auto index = item[0].get<std::size_t>();
    if (index >= count) {
      throw ValueError("the checkpoint's optimizer has a state for parameter " + std::to_string(index) +
                       "; this one has " + std::to_string(count) + " parameters");
    }
    found[index] = &item[1].as_dict();
  }
  return found;
}

void expect_groups(const optim::Optimizer& optimizer, const List& groups) {
  const auto& own = optimizer.param_groups();
  if (groups.size() != own.size()) {
    throw ValueError(
        c10::str("the checkpoint's optimizer has ", groups.size(), " parameter groups, this one has ", own.size()));
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto stored = groups[i]["params"].as_list().size();
    if (stored != own[i].params().size()) {
      throw ValueError(c10::str("parameter group ", i, " has ", stored,
                                " parameters in the checkpoint's optimizer and ", own[i].params().size(),
                                " in this one"));
    }
  }
}

template <typename Kind>
void read(optim::Optimizer& optimizer, const Dict& state) {
  const List& groups = state["param_groups"].as_list();
  expect_groups(optimizer, groups);
  std::vector<at::Tensor> parameters;
  std::vector<std::unique_ptr<optim::OptimizerOptions>> options;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Dict& group = groups[i].as_dict();
    const std::string place = "optimizer/param_groups/" + std::to_string(i);
    auto& own = optimizer.param_groups()[i];
    auto read = std::make_unique<typename Kind::Options>(as<typename Kind::Options>(own.options()));
    Kind::options(*read, Reader(group, place));
    for (const auto& fixed : Kind::fixed()) expect_fixed(group, fixed, Kind::kName, place);
    options.push_back(std::move(read));
    parameters.insert(parameters.end(), own.params().begin(), own.params().end());
  }

  const auto stored = states_by_index(state["state"], parameters.size());
  std::vector<std::pair<void*, std::unique_ptr<optim::OptimizerParamState>>> states;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (stored[i] == nullptr) continue;
    auto read = std::make_unique<typename Kind::State>();
    Kind::state(*read, Reader(*stored[i], place_of(i), parameters[i]));
    if (Kind::complete(*read)) states.emplace_back(parameters[i].unsafeGetTensorImpl(), std::move(read));
  }

  // No exceptions from here on.
  for (std::size_t i = 0; i < options.size(); ++i) {
    optimizer.param_groups()[i].set_options(std::move(options[i]));
  }
  optimizer.state().clear();
  for (auto& [parameter, read] : states) optimizer.state()[parameter] = std::move(read);
}

template <typename Do>
auto with_kind(const optim::Optimizer& optimizer, Do&& act) {
  if (dynamic_cast<const optim::SGD*>(&optimizer)) return act.template operator()<Sgd>();
  if (dynamic_cast<const optim::Adam*>(&optimizer)) return act.template operator()<Adam>();
  if (dynamic_cast<const optim::AdamW*>(&optimizer)) return act.template operator()<AdamW>();
  if (dynamic_cast<const optim::RMSprop*>(&optimizer)) return act.template operator()<RmsProp>();
  if (dynamic_cast<const optim::Adagrad*>(&optimizer)) return act.template operator()<AdaGrad>();
  throw ValueError(
      "the state of this optimizer cannot be saved or loaded: use SGD, Adam, AdamW, RMSprop, Adagrad or LBFGS, or save "
      "its state as extras");
}

}  // namespace

Dict optimizer_state(const optim::Optimizer& optimizer) {
  if (const auto* lbfgs = dynamic_cast<const optim::LBFGS*>(&optimizer)) return lbfgs_state(*lbfgs);
  return with_kind(optimizer, [&]<typename Kind>() { return write<Kind>(optimizer); });
}

void load_optimizer(optim::Optimizer& optimizer, const Dict& state) {
  if (auto* lbfgs = dynamic_cast<optim::LBFGS*>(&optimizer)) {
    expect_groups(optimizer, state["param_groups"].as_list());
    return load_lbfgs(*lbfgs, state);
  }
  with_kind(optimizer, [&]<typename Kind>() { read<Kind>(optimizer, state); });
}

}  // namespace trireme::torch::detail
