#include "api/runtime.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "base/fields.h"
#include "base/host.h"
#include "base/json.h"
#include "control/run_registry.h"

namespace trireme::api {
namespace {

base::Result<std::optional<double>> number_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::optional<double>();
  char* end = nullptr;
  double value = std::strtod(text, &end);
  if (*end != '\0') return base::error("{}='{}' is not a number; use a number, for example {}=8", name, text, name);
  return std::optional(value);
}

base::Result<std::optional<Resources>> resources_from_environment() {
  const char* text = std::getenv("TRIREME_RESOURCES");
  if (!text || !*text) return std::optional<Resources>();
  TRIREME_ASSIGN(auto value, base::parse_json(text), "TRIREME_RESOURCES='{}': write {{\"name\": amount}}", text);
  TRIREME_ASSIGN(auto resources, base::Codec<Resources>::from(value),
                 "TRIREME_RESOURCES='{}': write {{\"name\": amount}}", text);
  return std::optional(std::move(resources));
}

base::Result<void> check_amount(const char* name, double value, bool whole) {
  if (!(value >= 0) || !std::isfinite(value))
    return base::error("{} = {}: must be a number of at least 0", name, value);
  if (whole && value != std::floor(value)) return base::error("{} = {}: must be an integer", name, value);
  return {};
}

base::Result<Resources> checked_resources(const Resources& resources) {
  for (const auto& [name, amount] : resources) {
    if (name == "CPU" || name == "GPU")
      return base::error("resources['{}']: use num_{}s instead", name, name == "CPU" ? "cpu" : "gpu");
    TRIREME_TRY(check_amount(name.c_str(), amount, false));
  }
  return resources;
}

}  // namespace

base::Result<void> Runtime::init(InitOptions options) {
  TRIREME_ASSIGN(auto choice, choose_engine(options));
  if (!choice.local()) return init_remote(options, std::move(choice));
  if (!options.num_cpus) {
    TRIREME_ASSIGN(options.num_cpus, number_from_environment("TRIREME_NUM_CPUS"));
  }
  if (!options.num_gpus) {
    TRIREME_ASSIGN(options.num_gpus, number_from_environment("TRIREME_NUM_GPUS"));
  }
  if (!options.resources) {
    TRIREME_ASSIGN(options.resources, resources_from_environment());
  }

  engine::LocalEngineOptions made;
  if (options.num_cpus) {
    TRIREME_TRY(check_amount("num_cpus", *options.num_cpus, false));
    made.machine.num_cpus = options.num_cpus;
  }
  if (options.num_gpus) {
    TRIREME_TRY(check_amount("num_gpus", *options.num_gpus, true));
    made.machine.num_gpus = static_cast<int>(*options.num_gpus);
  }
  TRIREME_ASSIGN(made.machine.resources, checked_resources(options.resources.value_or(Resources())));
  made.machine.host = base::host_name();
  made.machine.state_dir = control::state_dir();
  made.python = python_;
  if (local_ && state_dir_ == made.machine.state_dir) {
    // Keeps the warm process that an import has started: it does not depend on capacity.
    local_->declare(made.machine);
    return {};
  }
  shutdown();
  state_dir_ = made.machine.state_dir;
  auto local = std::make_unique<engine::LocalEngine>(std::move(made));
  local_ = local.get();
  engine_ = std::move(local);
  choice_ = std::move(choice);
  return {};
}

base::Result<void> Runtime::init_remote(const InitOptions& options, EngineChoice choice) {
  // A script that declares its machine may run on any engine.
  if (!options.engine.empty() && choice.name == options.engine &&
      (options.num_cpus || options.num_gpus || options.resources)) {
    return base::error(
        "engine = '{}': num_cpus, num_gpus and resources describe this machine, but workers run on the engine's nodes; "
        "leave them out",
        choice.name);
  }
  const auto state_dir = control::state_dir();
  if (engine_ && !local_ && choice_ == choice && state_dir_ == state_dir) return {};
  TRIREME_ASSIGN(auto made, remote_options(choice, python_, state_dir));
  shutdown();
  TRIREME_ASSIGN(engine_, engine::RemoteEngine::start(std::move(made)));
  state_dir_ = state_dir;
  choice_ = std::move(choice);
  return {};
}

void Runtime::shutdown() {
  local_ = nullptr;
  engine_.reset();
}

base::Result<Dict> Runtime::set_capacity(const Capacity& asked) {
  TRIREME_TRY(engine());
  if (!local_) {
    return base::error("engine = '{}': its capacity is that of its nodes and cannot be changed here", choice_.name);
  }
  engine::Capacity capacity;
  if (asked.num_cpus) {
    TRIREME_TRY(check_amount("num_cpus", *asked.num_cpus, false));
    capacity.num_cpus = asked.num_cpus;
  }
  if (asked.num_gpus) {
    TRIREME_TRY(check_amount("num_gpus", *asked.num_gpus, true));
    capacity.num_gpus = static_cast<int>(*asked.num_gpus);
  }
  TRIREME_ASSIGN(capacity.resources, checked_resources(asked.resources));
  TRIREME_ASSIGN(auto node, local_->set_capacity(capacity));
  return Dict{{"host", node.host},
              {"total", base::Codec<Resources>::to(node.total)},
              {"available", base::Codec<Resources>::to(node.available)},
              {"in_use", base::Codec<Resources>::to(node.in_use)},
              {"cpus_declared", node.cpus_declared}};
}

base::Result<engine::Engine*> Runtime::engine() {
  if (!engine_) TRIREME_TRY(init({}));
  return engine_.get();
}

base::Result<void> Runtime::warm_up(std::vector<std::string> preload) {
  TRIREME_TRY(engine());
  engine_->warm_up(std::move(preload));
  return {};
}

}  // namespace trireme::api
