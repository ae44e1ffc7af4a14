#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/script.h"

namespace trireme::cli {
namespace {

using base::error;
using base::Result;

// torchrun options that have no meaning here, and what to do instead.
struct TorchrunOption {
  std::string_view beginning;
  std::string_view instead;
};
constexpr auto kTorchrunOptions = std::to_array<TorchrunOption>({
    {"--rdzv-", "workers rendezvous over the run's own connection; leave it out; --engine selects the nodes"},
    {"--master-", "workers rendezvous over the run's own connection and need no port; leave it out"},
    {"--node-rank", "--engine selects the nodes; leave it out"},
    {"--local-addr", "--engine selects the nodes; leave it out"},
    {"--no-python", "workers are Python processes; a C++ program starts its own workers with trireme::init()"},
    {"--run-path", "this is the default; leave it out"},
    {"--log-dir", "every rank has a log file in the run folder; --storage-path sets where run folders are stored"},
    {"--redirects", "every rank has a log file in the run folder, shown by `trireme logs`; leave it out"},
    {"--tee", "output is already both shown and written to a log file per rank; leave it out"},
    {"--local-ranks-filter", "`trireme logs --rank R` shows one rank; leave it out"},
    {"--monitor-interval", "failures are reported at once, without polling; leave it out"},
    {"--start-method", "workers are forked from a process that has imported their modules; leave it out"},
    {"--role", "all workers have the same role; leave it out"},
});

Result<void> refuse_option(const std::string& written) {
  std::string name = written.substr(0, written.find('='));
  std::replace(name.begin(), name.end(), '_', '-');
  for (const auto& option : kTorchrunOptions) {
    if (name.starts_with(option.beginning)) return error("torchrun option {}: {}", written, option.instead);
  }
  return unknown_option("launch", written);
}

Result<void> check(const LaunchCommand& command) {
  if (command.nnodes && *command.nnodes != "1" && *command.nnodes != "1:1") {
    return error(
        "--nnodes {}: leave it out, select the nodes with --engine, and set the total number of workers with -n",
        *command.nnodes);
  }
  const std::string script = command.script.empty() ? "" : command.script.front();
  if (script.starts_with("-")) return refuse_option(script);
  if (!command.options.module || script.empty()) return check_script("launch", command.script);
  if (script.ends_with(".py") || script.find('/') != std::string::npos) {
    return error("-m takes the name of a module, such as package.train; '{}' is a file: leave out -m", script);
  }
  return {};
}

Variables variables(const std::vector<std::string>& assignments) {
  Variables made;
  for (const auto& assignment : assignments) {
    const auto end = assignment.find('=');
    made[assignment.substr(0, end)] = assignment.substr(end + 1);
  }
  return made;
}

}  // namespace

Result<int> launch(LaunchCommand command) {
  if (auto checked = check(command); !checked) return wrong_usage(checked.error());
  set_engine(command.engine);
  // Set by an enclosing `trireme run`; -n takes precedence.
  ::unsetenv("TRIREME_RUN_NUM_WORKERS");
  if (command.num_cpus) ::setenv("TRIREME_NUM_CPUS", base::amount(*command.num_cpus).c_str(), 1);
  if (command.num_gpus) ::setenv("TRIREME_NUM_GPUS", base::amount(*command.num_gpus).c_str(), 1);
  command.options.env = variables(command.assignments);
  std::vector<std::string> words = {"-m", "trireme._launch", base::to_json(base::to_dict(command.options))};
  words.insert(words.end(), command.script.begin(), command.script.end());
  return become_driver(std::move(words), command.detach);
}

std::string worker_count_problem(const std::string& text) {
  if (text == "cpu" || text == "gpu" || text == "auto") return {};
  const auto numbers = base::split(text, ',');
  auto positive = [](const std::string& number) {
    return !number.empty() && number.find_first_not_of("0123456789") == std::string::npos &&
           number.find_first_not_of('0') != std::string::npos;
  };
  if (numbers.size() <= 2 && std::all_of(numbers.begin(), numbers.end(), positive)) return {};
  return fmt::format("'{}' is not a number of workers: use N (at least 1), MIN,MAX, or one of cpu, gpu, auto", text);
}

std::string variable_problem(const std::string& text) {
  const auto end = text.find('=');
  if (end != std::string::npos && end > 0) return {};
  return fmt::format("'{}' is not a variable: write NAME=VALUE", text);
}

}  // namespace trireme::cli
