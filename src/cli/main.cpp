#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/commands.h"

namespace trireme::cli {
namespace {

using Command = std::function<base::Result<int>()>;

constexpr const char* kExitCodes =
    "\nExit codes: 0 done; 1 it did not work, the reason is on stderr; 2 wrong usage;\n"
    "`trireme run` ends with the exit code of the script, `trireme launch` with 130 after Ctrl-C,\n"
    "both with 127 when there is no Python.";

CLI::Validator whole_number(std::int64_t least) {
  auto check = [least](std::string& text) {
    std::int64_t number = 0;
    const bool good = CLI::detail::lexical_cast(text, number) && number >= least;
    return good ? std::string() : fmt::format("'{}' must be a whole number of at least {}", text, least);
  };
  return CLI::Validator(check, "");
}

constexpr const char* kRunHelp = "The run: its name, its folder, or the beginning of its id";

// What `run` and `launch` both let the user say.
template <typename Options>
void add_machine_options(CLI::App& command, Options& options) {
  command.add_option("--num-cpus", options.num_cpus, "CPUs that this machine offers")->check(CLI::NonNegativeNumber);
  command.add_option("--num-gpus", options.num_gpus, "GPUs that this machine offers")->check(CLI::NonNegativeNumber);
  command.add_option("--preload", options.preload, "A module that workers find already imported; may be given again")
      ->take_all()
      ->allow_extra_args(false);
}

void add_run(CLI::App& app, RunOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("run", "Run a Python script, with more or fewer workers than it asks for");
  command->footer("trireme run [options] script.py [args of the script...]");
  command
      ->add_option("--num-workers", options.num_workers,
                   "Workers of the script's trainers: N, or MIN,MAX for elastic runs")
      ->check([](const std::string& text) {
        bool digits = !text.empty() && text.find_first_not_of("0123456789,") == std::string::npos;
        return digits ? std::string() : fmt::format("'{}' is neither a number of workers nor MIN,MAX", text);
      });
  add_machine_options(*command, options);
  // Everything from the script on belongs to the script.
  command->prefix_command();
  command->callback([command, &options, &chosen] {
    options.script = command->remaining();
    chosen = [&options] { return run(options); };
  });
}

// People come with the command that they have.
void add_torchrun_options(CLI::App& command, LaunchOptions& options) {
  constexpr const char* kTorchrun = "As torchrun has them";
  command.add_option("--nproc-per-node,--nproc_per_node", options.num_workers, "The same as -n")
      ->check(worker_count_problem)
      ->group(kTorchrun);
  command.add_option("--max-restarts,--max_restarts", options.max_failures, "The same as --max-failures")
      ->check(whole_number(-1))
      ->group(kTorchrun);
  command.add_flag("--standalone")->description("Nothing: it is always so")->group(kTorchrun);
  command.add_option("--nnodes", options.nnodes, "Only 1")->group(kTorchrun);
}

void add_launch(CLI::App& app, LaunchOptions& options, Command& chosen) {
  auto* command =
      app.add_subcommand("launch", "Run copies of a torchrun script as workers: trireme launch -n 4 train.py");
  command->footer("trireme launch [options] script.py [args of the script...]");
  const char* count_help = "Workers: N, MIN,MAX for an elastic run, or cpu, gpu, auto: one for each of this machine";
  command->add_option("-n,--num-workers", options.num_workers, count_help)
      ->check(worker_count_problem)
      ->capture_default_str();
  command->add_flag("-m,--module", options.module, "The script is the name of a module, as for python -m");
  command->add_option("--max-failures", options.max_failures, "Start again after this many failures; -1 for always")
      ->check(whole_number(-1));
  command->add_option("--name", options.name, "The run's name; the same name again continues it");
  command->add_option("--storage-path", options.storage_path, "Where runs lie: a folder or a URI");
  command->add_option("--num-to-keep", options.num_to_keep, "Keep this many checkpoints; all when not given")
      ->check(whole_number(1));
  command->add_flag("--use-gpu", options.use_gpu, "Reserve a GPU for each worker: cuda:LOCAL_RANK");
  command->add_option("--gpus-per-worker", options.gpus_per_worker, "Whole GPUs for each worker")
      ->check(whole_number(1));
  command->add_option("--cpus-per-worker", options.cpus_per_worker, "CPUs for each worker, and OMP_NUM_THREADS; 1")
      ->check(CLI::PositiveNumber);
  add_machine_options(*command, options);
  command->add_option("--env", options.env, "NAME=VALUE in the workers' environment; may be given again")
      ->take_all()
      ->allow_extra_args(false)
      ->check(variable_problem);
  add_torchrun_options(*command, options);
  // Everything from the script on belongs to the script.
  command->prefix_command();
  command->callback([command, &options, &chosen] {
    options.script = command->remaining();
    chosen = [&options] { return launch(options); };
  });
}

void add_runs(CLI::App& app, RunsOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("runs", "List the runs of this user on this machine, the newest first");
  command->add_flag("--all", options.all, "All of them, also those whose folder is gone");
  command->add_flag("--json", options.json, "As JSON");
  command->callback([&] { chosen = [&] { return runs(options); }; });
}

void add_show(CLI::App& app, ShowOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("show", "Tell how a run is doing, or how it ended");
  command->add_option("run", options.run, std::string(kRunHelp) + "; the newest when not given");
  command->add_flag("--json", options.json, "As JSON");
  command->callback([&] { chosen = [&] { return show(options); }; });
}

void add_checkpoints(CLI::App& app, CheckpointsOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("checkpoints", "List the checkpoints of a run, the best one last");
  command->add_option("run", options.run, std::string(kRunHelp) + "; the newest when not given");
  command->add_flag("--verify", options.verify, "Read every file and compare checksums; the exit code tells");
  command->add_flag("--json", options.json, "As JSON");
  command->callback([&] { chosen = [&] { return checkpoints(options); }; });
}

void add_data(CLI::App& app, DataVerifyOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("data", "Look at the data of a run");
  command->require_subcommand(1);
  auto* verify = command->add_subcommand("verify", "Prove that every row was taken exactly once in every epoch");
  verify->add_option("run", options.run, std::string(kRunHelp) + "; the newest when not given");
  verify->add_flag("--json", options.json, "As JSON");
  verify->callback([&] { chosen = [&] { return data_verify(options); }; });
}

void add_logs(CLI::App& app, LogsOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("logs", "Print what the workers of a run have printed");
  command->add_option("run", options.run, std::string(kRunHelp) + "; the newest when not given");
  command->add_option("--rank", options.rank, "Only this rank")->check(CLI::NonNegativeNumber);
  command->add_option("--attempt", options.attempt, "This attempt, from 0; the last one when not given")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("-f,--follow", options.follow, "Go on until the run ends");
  command->add_option("-n,--lines", options.lines, "Only the last lines of each rank")->check(CLI::NonNegativeNumber);
  command->callback([&] { chosen = [&] { return logs(options); }; });
}

void add_stop(CLI::App& app, StopOptions& options, Command& chosen) {
  auto* command =
      app.add_subcommand("stop", "End a run: workers may finish what they are at, then their driver goes on");
  command->add_option("run", options.run, kRunHelp)->required();
  command->add_flag("--hard", options.hard, "At once, without grace");
  command->callback([&] { chosen = [&] { return stop(options); }; });
}

void add_stack(CLI::App& app, StackOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("stack", "Tell where every rank of a run is, Python and C++ frames");
  command->add_option("run", options.run, kRunHelp)->required();
  command->callback([&] { chosen = [&] { return stack(options); }; });
}

void add_preempt(CLI::App& app, PreemptOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("preempt", "Announce that workers of a run will be taken away");
  command->add_option("run", options.run, kRunHelp)->required();
  command->add_option("--deadline", options.deadline, "Seconds until then; the run's preemption_grace_s when not given")
      ->check(amount_problem);
  command->add_option("--rank", options.ranks, "A rank that will be lost; may be given again; all when not given")
      ->check(whole_number(0))
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--why", options.why, "For the event log, and what the workers are told");
  command->callback([&] { chosen = [&] { return preempt(options); }; });
}

void add_capacity(CLI::App& app, CapacityOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("capacity", "Tell or change how much of this machine runs may use");
  command->add_option("run", options.run, std::string(kRunHelp) + "; all that are running when not given");
  command->add_option("--num-cpus", options.num_cpus, "CPUs that this machine offers from now on")
      ->check(amount_problem);
  command->add_option("--num-gpus", options.num_gpus, "GPUs that it offers from now on")->check(whole_number(0));
  command->add_option("--resource", options.resources, "NAME=AMOUNT that it offers from now on; may be given again")
      ->take_all()
      ->allow_extra_args(false)
      ->check(resource_problem);
  command->callback([&] { chosen = [&] { return capacity(options); }; });
}

void add_env(CLI::App& app, EnvOptions& options, Command& chosen) {
  auto* command = app.add_subcommand("env", "Tell what this machine offers and where things lie");
  command->add_flag("--json", options.json, "As JSON");
  command->callback([&] { chosen = [&] { return env(options); }; });
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

  RunOptions run_options;
  LaunchOptions launch_options;
  RunsOptions runs_options;
  ShowOptions show_options;
  CheckpointsOptions checkpoints_options;
  DataVerifyOptions data_options;
  LogsOptions logs_options;
  StopOptions stop_options;
  StackOptions stack_options;
  PreemptOptions preempt_options;
  CapacityOptions capacity_options;
  EnvOptions env_options;
  Command chosen;
  add_run(app, run_options, chosen);
  add_launch(app, launch_options, chosen);
  add_runs(app, runs_options, chosen);
  add_show(app, show_options, chosen);
  add_checkpoints(app, checkpoints_options, chosen);
  add_data(app, data_options, chosen);
  add_logs(app, logs_options, chosen);
  add_stop(app, stop_options, chosen);
  add_stack(app, stack_options, chosen);
  add_preempt(app, preempt_options, chosen);
  add_capacity(app, capacity_options, chosen);
  add_env(app, env_options, chosen);
  if (argc == 1) {
    fmt::print("{}", app.help());
    return kWrongUsage;
  }
  // CLI11 tells of wrong usage, and of --help, by throwing.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kDone : kWrongUsage;
  }
  return finish(chosen());
}

}  // namespace trireme::cli

int main(int argc, char** argv) { return trireme::cli::command_line(argc, argv); }
