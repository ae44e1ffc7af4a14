#include "trireme/torch/state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "device_bytes.h"
#include "optimizer_state.h"
#include "trireme/torch/tensor.h"
#include "trireme/torch/torch.h"

namespace trireme::torch {
namespace {

std::string described(const at::Tensor& tensor) { return detail::state_tensor(tensor.detach()).describe(); }

// Parameters and buffers under their names in Python.
std::vector<std::pair<std::string, at::Tensor>> tensors_of(const ::torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> found;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) found.emplace_back(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) found.emplace_back(item.key(), item.value());
  }
  return found;
}

// The prefix of every name in the state_dict() of Python's DistributedDataParallel.
constexpr std::string_view kWrapper = "module.";

bool wrapped(const Dict& state) {
  return !state.empty() &&
         std::all_of(state.begin(), state.end(), [](const auto& item) { return item.first.starts_with(kWrapper); });
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kShown ? text + " and " + std::to_string(names.size() - kShown) + " more" : text;
}

struct Misfit {
  std::vector<std::string> missing, unexpected, different;

  void check() const {
    std::string text;
    if (!missing.empty()) text += "; the checkpoint lacks " + listed(missing);
    if (!unexpected.empty()) text += "; the module lacks " + listed(unexpected);
    if (!different.empty()) text += "; different type or shape: " + listed(different);
    if (!text.empty()) throw ValueError("the state does not match the module" + text);
  }
};

struct Copy {
  at::Tensor from, to;
};

// The copies to do; throws if the state does not match the module.
std::vector<Copy> plan(const ::torch::nn::Module& module, const Dict& state) {
  const std::string before = wrapped(state) ? std::string(kWrapper) : std::string();
  std::vector<Copy> copies;
  Misfit misfit;
  std::unordered_set<std::string> known;
  for (const auto& [name, tensor] : tensors_of(module)) {
    known.insert(before + name);
    const Value* found = state.find(before + name);
    if (found == nullptr) {
      misfit.missing.push_back(name);
      continue;
    }
    const auto* stored = found->get_if<Tensor>();
    const std::string wanted = described(tensor);
    if (stored == nullptr || stored->describe() != wanted) {
      misfit.different.push_back(name + " is " + (stored ? stored->describe() : found->type_name()) +
                                 " in the checkpoint and " + wanted + " in the module");
      continue;
    }
    copies.push_back({to_torch(*stored), tensor});
  }
  for (const auto& [name, value] : state) {
    if (!known.contains(name)) misfit.unexpected.push_back(name);
  }
  misfit.check();
  return copies;
}

void apply(const std::vector<Copy>& copies) {
  const at::NoGradGuard no_grad;
  for (const auto& copy : copies) copy.to.detach().copy_(copy.from);
}

const Dict& part(const Dict& state, std::string_view name) {
  const Value* found = state.find(name);
  if (found == nullptr || found->get_if<Dict>() == nullptr) {
    std::vector<std::string> there;
    for (const auto& [key, value] : state) there.push_back("\"" + key + "\"");
    throw ValueError("the checkpoint has no \"" + std::string(name) +
                     "\" saved by trireme::torch::save() or a Python state_dict(); it has " +
                     (there.empty() ? "nothing" : listed(there)));
  }
  return found->as_dict();
}

std::vector<c10::Device> generators() {
  std::vector<c10::Device> devices = {c10::Device(c10::kCPU)};
  if (at::globalContext().hasCUDA() && get_device().is_cuda()) devices.push_back(get_device());
  return devices;
}

std::string name_of(const c10::Device& device) { return device.is_cpu() ? "cpu" : "cuda"; }

}  // namespace

Dict state_of(const ::torch::nn::Module& module) {
  Dict state;
  for (const auto& [name, tensor] : tensors_of(module)) state.append(name, detail::state_tensor(tensor));
  return state;
}

void load_state(::torch::nn::Module& module, const Dict& state) { apply(plan(module, state)); }

Checkpoint save(const ::torch::nn::Module& module, Dict extras) {
  Dict state = {{"model", state_of(module)}};
  for (auto& [key, value] : extras) {
    if (state.contains(key)) throw ValueError("\"" + key + "\" is reserved: use a different name for the extra");
    state.append(key, std::move(value));
  }
  return Checkpoint::from_state(std::move(state));
}

Checkpoint save(const ::torch::nn::Module& module, const ::torch::optim::Optimizer& optimizer, Dict extras) {
  if (extras.contains("optimizer")) {
    throw ValueError("\"optimizer\" is reserved: use a different name for the extra");
  }
  Dict all = {{"optimizer", state_of(optimizer)}};
  for (auto& [key, value] : extras) all.append(key, std::move(value));
  return save(module, std::move(all));
}

Dict load(const Checkpoint& checkpoint, ::torch::nn::Module& module) {
  Dict state = checkpoint.load_state();
  apply(plan(module, part(state, "model")));
  state.erase("model");
  return state;
}

Dict load(const Checkpoint& checkpoint, ::torch::nn::Module& module, ::torch::optim::Optimizer& optimizer) {
  Dict state = checkpoint.load_state();
  const auto copies = plan(module, part(state, "model"));
  load_state(optimizer, part(state, "optimizer"));  // changes nothing if it throws
  apply(copies);
  state.erase("model");
  state.erase("optimizer");
  return state;
}

Dict state_of(const ::torch::optim::Optimizer& optimizer) { return detail::optimizer_state(optimizer); }

void load_state(::torch::optim::Optimizer& optimizer, const Dict& state) { detail::load_optimizer(optimizer, state); }

Dict rng_state() {
  Dict state;
  for (const auto& device : generators()) {
    auto generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    state[name_of(device)] = from_torch(generator.get_state());
  }
  return state;
}

void set_rng_state(const Dict& state) {
  for (const auto& device : generators()) {
    const Value* stored = state.find(name_of(device));
    if (stored == nullptr) continue;
    auto generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(to_torch(stored->as_tensor()).clone());
  }
}

}  // namespace trireme::torch
