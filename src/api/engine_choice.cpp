#include "api/engine_choice.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/text.h"

namespace trireme::api {
namespace {

const std::vector<std::string> kKnown = {"local", "hosts", "ray", "slurm"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

base::Result<void> add_options(const char* name, Dict& options) {
  const std::string text = variable(name);
  if (text.empty()) return {};
  TRIREME_ASSIGN(const auto given, base::parse_json_dict(text), "{}='{}': write a JSON object", name, text);
  for (const auto& [key, value] : given) options[key] = value;
  return {};
}

std::string absolute_program() {
  std::error_code failure;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", failure);
  return failure ? "/proc/self/exe" : path.native();
}

}  // namespace

base::Result<EngineChoice> choose_engine(const InitOptions& options) {
  EngineChoice choice;
  const std::string by_command = variable("TRIREME_RUN_ENGINE");
  const std::string by_environment = variable("TRIREME_ENGINE");
  choice.name = !by_command.empty()       ? by_command
                : !options.engine.empty() ? options.engine
                : !by_environment.empty() ? by_environment
                                          : "local";
  // Options for another engine than the chosen one are not its options.
  if (by_command.empty() && (options.engine.empty() || options.engine == by_environment)) {
    TRIREME_TRY(add_options("TRIREME_ENGINE_OPTIONS", choice.options));
  }
  if (by_command.empty() || by_command == options.engine) {
    for (const auto& [key, value] : options.engine_options) choice.options[key] = value;
  }
  if (!by_command.empty()) TRIREME_TRY(add_options("TRIREME_RUN_ENGINE_OPTIONS", choice.options));
  if (choice.local() && !choice.options.empty()) {
    return base::error("engine_options['{}']: the local engine has no options; see num_cpus, num_gpus and resources",
                       choice.options.begin()->first);
  }
  return choice;
}

base::Result<Adapter> adapter_of(const std::string& name, const std::string& python) {
  const auto colon = name.find(':');
  const std::string engine = name.substr(0, colon);
  Adapter adapter;
  if (colon != std::string::npos) adapter.argument = name.substr(colon + 1);
  if (engine.ends_with(".py")) {
    std::error_code failure;
    const auto path = std::filesystem::absolute(engine, failure);
    if (!std::filesystem::is_regular_file(path, failure)) {
      return base::error("engine = '{}': there is no file {}", name, path.native());
    }
    adapter.command = {python, path.native()};
  } else if (engine != "local" && std::find(kKnown.begin(), kKnown.end(), engine) != kKnown.end()) {
    adapter.command = {python, "-m", "trireme.engines." + engine};
  } else if (engine.find('.') != std::string::npos && engine.find('/') == std::string::npos) {
    adapter.command = {python, "-m", engine};
  } else {
    return base::error(
        "engine = '{}': unknown{}; use local, hosts:a,b, ray, slurm, or an adapter: the path of a file that ends with "
        ".py, or the name of a module with a dot",
        name, base::did_you_mean(engine, kKnown));
  }
  return adapter;
}

base::Result<engine::RemoteEngineOptions> remote_options(const EngineChoice& choice, std::vector<std::string> python,
                                                         std::filesystem::path state_dir) {
  const std::string chosen = variable("TRIREME_PYTHON");
  const std::string interpreter = !python.empty() ? python.front() : chosen.empty() ? "python3" : chosen;
  TRIREME_ASSIGN(auto adapter, adapter_of(choice.name, interpreter));
  engine::RemoteEngineOptions options;
  options.name = choice.name;
  options.adapter = std::move(adapter.command);
  options.options = choice.options;
  if (adapter.argument) options.options["argument"] = *adapter.argument;
  if (python.empty()) {
    options.agent = {absolute_program()};
    options.agent_env["TRIREME_AGENT"] = "1";
  } else {
    options.agent = std::move(python);
    options.agent.insert(options.agent.end(), {"-m", "trireme._cli", "agent"});
  }
  options.state_dir = std::move(state_dir);
  return options;
}

}  // namespace trireme::api
