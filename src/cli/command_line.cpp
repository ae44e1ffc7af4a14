#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <stdexcept>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/help_formatter.h"
#include "cli/script.h"

namespace trireme::cli {
namespace {

using Command = std::function<base::Result<int>()>;

constexpr const char* kExitCodes =
    "\nExit codes: 0: success; 1: failure, with the reason on stderr; 2: wrong usage.\n"
    "`trireme run` exits with the code of the script, `trireme launch` with 130 after Ctrl-C,\n"
    "both with 127 if no Python is found.";

CLI::Validator whole_number(std::int64_t least) {
  auto check = [least](std::string& text) {
    std::int64_t number = 0;
    const bool good = CLI::detail::lexical_cast(text, number) && number >= least;
    return good ? std::string() : fmt::format("'{}' must be an integer of at least {}", text, least);
  };
  return CLI::Validator(check, "");
}

constexpr const char* kRunHelp = "Name, folder, or first digits of the id of a run";

// The description of a field of LaunchOptions.
std::string launch_help(std::string_view field) {
  std::string found;
  base::Fields<LaunchOptions>::each([&](std::string_view name, auto, const char* doc) {
    if (name == field) found = doc;
  });
  if (found.empty()) throw std::logic_error(fmt::format("LaunchOptions has no field '{}'", field));
  return found;
}

void add_engine_options(CLI::App& command, EngineArguments& engine) {
  auto* name = command.add_option("--engine", engine.engine,
                                  "Where workers run: local, hosts:a,b, ray, slurm, or the path of an adapter");
  command.add_option("--engine-option", engine.options, "NAME=VALUE for the engine; may be repeated")
      ->needs(name)
      ->take_all()
      ->allow_extra_args(false)
      ->check(variable_problem);
}

// For the commands that look at runs.
void add_driver_options(CLI::App& command, DriverArguments& driver) {
  command
      .add_option("--engine", driver.engine.engine,
                  "Run this command beside a script that was started with --detach on this engine")
      ->group("Detached scripts");
  command.add_option("--engine-option", driver.engine.options, "NAME=VALUE for the engine; may be repeated")
      ->take_all()
      ->allow_extra_args(false)
      ->check(variable_problem)
      ->group("Detached scripts");
  command.add_option("--job", driver.job, "The detached script, as shown when it was started (default: the only one)")
      ->group("Detached scripts");
}

// Options shared by `run` and `launch`.
template <typename Options>
void add_machine_options(CLI::App& command, Options& options, std::vector<std::string>& preload) {
  add_engine_options(command, options.engine);
  command.add_flag("--detach", options.detach, "Return at once; the script continues without this terminal or machine");
  command.add_option("--num-cpus", options.num_cpus, "CPUs that runs may use")->check(CLI::NonNegativeNumber);
  command.add_option("--num-gpus", options.num_gpus, "GPUs that runs may use")->check(CLI::NonNegativeNumber);
  command.add_option("--preload", preload, launch_help("preload"))->take_all()->allow_extra_args(false);
}

void add_run(CLI::App& app, RunOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("run", "Run a Python script, optionally with a different number of workers");

  command
      ->add_option("--num-workers", options.num_workers,
                   "num_workers of the script's trainers: N, or MIN,MAX for an elastic run")
      ->check([](const std::string& text) {
        bool digits = !text.empty() && text.find_first_not_of("0123456789,") == std::string::npos;
        return digits ? std::string() : fmt::format("'{}' is not a number of workers: use N, or MIN,MAX", text);
      });
  add_machine_options(*command, options, options.preload);
  command
      ->add_flag("--ray-compat{on}", options.ray_compat,
                 "The script was written for Ray Train; --ray-compat=report also lists the names of Ray that it uses")
      ->check(CLI::IsMember({"on", "report"}));
  // Everything from the script on belongs to the script.
  command->prefix_command();
  command->callback([command, &options, &chosen] {
    options.script = command->remaining();
    chosen = [&options] { return run(options); };
  });
}

// Lets users keep their torchrun command.
void add_torchrun_options(CLI::App& app, LaunchCommand& launched) {
  constexpr const char* kTorchrun = "torchrun options";
  app.add_option("--nproc-per-node,--nproc_per_node", launched.options.num_workers, "Same as -n")
      ->check(worker_count_problem)
      ->group(kTorchrun);
  app.add_option("--max-restarts,--max_restarts", launched.options.max_failures, "Same as --max-failures")
      ->check(whole_number(-1))
      ->group(kTorchrun);
  app.add_flag("--standalone")->description("No effect: always on")->group(kTorchrun);
  app.add_option("--nnodes", launched.nnodes, "Must be 1")->group(kTorchrun);
}

void add_launch(CLI::App& app, LaunchCommand& launched, Command& chosen) {
  auto* command =
      app.add_subcommand("launch", "Run copies of a torchrun script as workers: trireme launch -n 4 train.py");

  LaunchOptions& options = launched.options;
  command->add_option("-n,--num-workers", options.num_workers, launch_help("num_workers"))
      ->check(worker_count_problem)
      ->capture_default_str();
  command->add_flag("-m,--module", options.module, launch_help("module"));
  command->add_option("--max-failures", options.max_failures, launch_help("max_failures"))->check(whole_number(-1));
  command->add_option("--name", options.name, launch_help("name"));
  command->add_option("--storage-path", options.storage_path, launch_help("storage_path"));
  command->add_option("--num-to-keep", options.num_to_keep, launch_help("num_to_keep"))->check(whole_number(1));
  command->add_flag("--use-gpu", options.use_gpu, launch_help("use_gpu"));
  command->add_option("--gpus-per-worker", options.gpus_per_worker, launch_help("gpus_per_worker"))
      ->check(whole_number(1));
  command->add_option("--cpus-per-worker", options.cpus_per_worker, launch_help("cpus_per_worker"))
      ->check(CLI::PositiveNumber);
  add_machine_options(*command, launched, options.preload);
  command->add_option("--env", launched.assignments, launch_help("env"))
      ->take_all()
      ->allow_extra_args(false)
      ->check(variable_problem);
  add_torchrun_options(*command, launched);
  // Everything from the script on belongs to the script.
  command->prefix_command();
  command->callback([command, &launched, &chosen] {
    launched.script = command->remaining();
    chosen = [&launched] { return launch(launched); };
  });
}

void add_port(CLI::App& app, PortOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("port", "List the changes that turn a script for Ray Train into one for Trireme");
  command->add_flag("--write", options.write, "Apply the changes");
  command->add_option("script", options.scripts, "Python files")->required();
  command->callback([&] { chosen = [&] { return port(options); }; });
}

void add_runs(CLI::App& app, RunsOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("runs", "List this user's runs on this machine, newest first");
  command->add_flag("--all", options.all, "List all runs, including those whose folder was deleted");
  command->add_flag("--json", options.json, "Print JSON");
  command->callback([&] { chosen = [&] { return runs(options); }; });
}

void add_show(CLI::App& app, ShowOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("show", "Show the state of a run: metrics, failures, events");
  command->add_option("run", options.run, std::string(kRunHelp) + " (default: the newest run)");
  command->add_flag("--json", options.json, "Print JSON");
  command->callback([&] { chosen = [&] { return show(options); }; });
}

void add_checkpoints(CLI::App& app, CheckpointsOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("checkpoints", "List the checkpoints of a run, best one last");
  command->add_option("run", options.run, std::string(kRunHelp) + " (default: the newest run)");
  command->add_flag("--verify", options.verify, "Read every file and compare checksums; exit code 1 if one is damaged");
  command->add_flag("--json", options.json, "Print JSON");
  command->callback([&] { chosen = [&] { return checkpoints(options); }; });
}

void add_data(CLI::App& app, DataVerifyOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("data", "Check the data of a run");
  command->require_subcommand(1);
  auto* verify = command->add_subcommand("verify", "Verify that every row was used exactly once per epoch");
  verify->add_option("run", options.run, std::string(kRunHelp) + " (default: the newest run)");
  verify->add_flag("--json", options.json, "Print JSON");
  verify->callback([&] { chosen = [&] { return data_verify(options); }; });
}

void add_logs(CLI::App& app, LogsOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("logs", "Print the output of the workers of a run");
  command->add_option("run", options.run, std::string(kRunHelp) + " (default: the newest run)");
  command->add_option("--rank", options.rank, "Only this rank")->check(CLI::NonNegativeNumber);
  command->add_option("--attempt", options.attempt, "Only this attempt, counted from 0 (default: the last one)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("-f,--follow", options.follow, "Follow until the run ends");
  command->add_option("-n,--lines", options.lines, "Only the last N lines of each rank")->check(CLI::NonNegativeNumber);
  command->callback([&] { chosen = [&] { return logs(options); }; });
}

void add_stop(CLI::App& app, StopOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("stop", "Stop a run: uploads finish, workers exit, fit() raises in the driver");
  command->add_option("run", options.run, kRunHelp);
  command->add_flag("--hard", options.hard, "Kill the workers at once");
  command->callback([&] { chosen = [&] { return stop(options); }; });
}

void add_stack(CLI::App& app, StackOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("stack", "Print the stacks of all ranks of a run, Python and native frames");
  command->add_option("run", options.run, kRunHelp)->required();
  command->callback([&] { chosen = [&] { return stack(options); }; });
}

void add_preempt(CLI::App& app, PreemptOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("preempt", "Announce that workers of a run will be preempted");
  command->add_option("run", options.run, kRunHelp)->required();
  command
      ->add_option("--deadline", options.deadline,
                   "Seconds until the preemption (default: the run's preemption_grace_s)")
      ->check(amount_problem);
  command->add_option("--rank", options.ranks, "Rank that will be preempted; may be repeated (default: all)")
      ->check(whole_number(0))
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--why", options.why, "Reason, for the event log and get_preemption_info()");
  command->callback([&] { chosen = [&] { return preempt(options); }; });
}

void add_capacity(CLI::App& app, CapacityOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("capacity", "Show or change the capacity of this machine that runs may use");
  command->add_option("run", options.run, std::string(kRunHelp) + " (default: all active runs)");
  command->add_option("--num-cpus", options.num_cpus, "CPUs that runs may use from now on")->check(amount_problem);
  command->add_option("--num-gpus", options.num_gpus, "GPUs that runs may use from now on")->check(whole_number(0));
  command->add_option("--resource", options.resources, "NAME=AMOUNT of a custom resource from now on; may be repeated")
      ->take_all()
      ->allow_extra_args(false)
      ->check(resource_problem);
  command->callback([&] { chosen = [&] { return capacity(options); }; });
}

void add_manifest(CLI::App& app, ManifestOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("manifest", "Print a manifest for Kubernetes that runs a script");

  command->add_option("--kind", options.kind, "job: one node; jobset, rayjob: several")
      ->check(CLI::IsMember({"job", "jobset", "rayjob"}))
      ->capture_default_str();
  command->add_option("--image", options.image, "Image that contains the script, Trireme and the packages it imports")
      ->required();
  command->add_option("--name", options.name, "Name of all objects")
      ->check(kubernetes_name_problem)
      ->capture_default_str();
  command->add_option("--namespace", options.name_space, "Namespace of all objects (default: that of kubectl)")
      ->check(kubernetes_name_problem);
  command->add_option("--nodes", options.nodes, "Number of nodes")->check(whole_number(1))->capture_default_str();
  command->add_option("--num-cpus", options.num_cpus, "CPUs of each node")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--num-gpus", options.num_gpus, "GPUs of each node")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--memory", options.memory, "Memory of each node")->capture_default_str();
  command->add_option("--claim", options.claim, "PersistentVolumeClaim for checkpoints, shared by all nodes");
  command->add_option("--mount", options.mount, "Path of the claim's volume in the containers");
  // Everything from the script on belongs to the script.
  command->prefix_command();
  command->callback([command, &options, &chosen] {
    options.script = command->remaining();
    chosen = [&options] { return manifest(options); };
  });
}

void add_env(CLI::App& app, EnvOptions& options, Command& chosen) {
  auto* command =
      app.add_subcommand("env", "Show versions, CPUs, memory, GPUs, and where results and state are stored");
  command->add_flag("--json", options.json, "Print JSON");
  add_engine_options(*command, options.engine);
  command->callback([&] { chosen = [&] { return env(options); }; });
}

void add_agent(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand(
      "agent", "Serve a driver on this node: started by engines, reads a ticket from standard input");
  command->callback([&] { chosen = [] { return agent(); }; });
}

// CLI11 would only report that a subcommand is required.
std::optional<std::string> unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(each->get_name());
  }
  const auto word = std::find_if(words.begin(), words.end(), [](const auto& each) { return !each.starts_with('-'); });
  if (names.empty() || word == words.end()) return {};
  if (std::find(names.begin(), names.end(), *word) != names.end()) {
    return unknown_command(*app.get_subcommand(*word), {word + 1, words.end()});
  }
  const std::string parent = app.get_parent() ? app.get_name() + " " : "";
  return fmt::format("unknown command '{}{}'{} (commands: {})", parent, *word, base::did_you_mean(*word, names),
                     base::join(names, ", "));
}

int finish(const base::Result<int>& result) {
  if (result) return *result;
  fmt::print(stderr, "trireme: {}\n", result.error().message());
  return kFailed;
}

}  // namespace

int command_line(int argc, char** argv) {
  CLI::App app("Trireme trains models on many workers.", "trireme");
  app.set_version_flag("--version", std::string("trireme ") + TRIREME_VERSION);
  app.require_subcommand(1);
  app.footer(kExitCodes);
  app.formatter(std::make_shared<HelpFormatter>());

  RunOptions run_options;
  LaunchCommand launched;
  PortOptions port_options;
  RunsOptions runs_options;
  ShowOptions show_options;
  CheckpointsOptions checkpoints_options;
  DataVerifyOptions data_options;
  LogsOptions logs_options;
  StopOptions stop_options;
  StackOptions stack_options;
  PreemptOptions preempt_options;
  CapacityOptions capacity_options;
  ManifestOptions manifest_options;
  EnvOptions env_options;
  Command chosen;
  add_run(app, run_options, chosen);
  add_launch(app, launched, chosen);
  add_port(app, port_options, chosen);
  add_runs(app, runs_options, chosen);
  add_show(app, show_options, chosen);
  add_checkpoints(app, checkpoints_options, chosen);
  add_data(app, data_options, chosen);
  add_logs(app, logs_options, chosen);
  add_stop(app, stop_options, chosen);
  add_stack(app, stack_options, chosen);
  add_preempt(app, preempt_options, chosen);
  add_capacity(app, capacity_options, chosen);
  add_manifest(app, manifest_options, chosen);
  add_env(app, env_options, chosen);
  add_agent(app, chosen);
  DriverArguments driver;
  for (const char* name : {"runs", "show", "checkpoints", "logs", "stop", "stack", "preempt"}) {
    add_driver_options(*app.get_subcommand(name), driver);
  }
  add_driver_options(*app.get_subcommand("data")->get_subcommand("verify"), driver);
  if (argc == 1) {
    fmt::print("{}", app.help());
    return kWrongUsage;
  }
  if (auto unknown = unknown_command(app, {argv + 1, argv + argc})) return wrong_usage(base::Error(*unknown));
  // CLI11 reports wrong usage and --help by throwing.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kDone : kWrongUsage;
  }
  if (!driver.empty()) return finish(at_driver(driver, {argv + 1, argv + argc}));
  return finish(chosen());
}

}  // namespace trireme::cli

int trireme_command_line(int argc, char** argv) { return trireme::cli::command_line(argc, argv); }
