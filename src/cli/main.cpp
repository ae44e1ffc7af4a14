#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/commands.h"

namespace trireme::cli {
namespace {

using Command = std::function<base::Result<int>()>;

constexpr const char* kExitCodes =
    "\nExit codes: 0 done; 1 it did not work, the reason is on stderr; 2 wrong usage;\n"
    "`trireme run` ends with the exit code of the script, and with 127 when there is no Python.";

constexpr const char* kRunHelp = "The run: its name, its folder, or the beginning of its id";

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
  command->add_option("--num-cpus", options.num_cpus, "CPUs that this machine offers")->check(CLI::NonNegativeNumber);
  command->add_option("--num-gpus", options.num_gpus, "GPUs that this machine offers")->check(CLI::NonNegativeNumber);
  command->add_option("--preload", options.preload, "A module that workers find already imported; may be given again")
      ->take_all()
      ->allow_extra_args(false);
  // Everything from the script on belongs to the script.
  command->prefix_command();
  command->callback([command, &options, &chosen] {
    options.script = command->remaining();
    chosen = [&options] { return run(options); };
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
  RunsOptions runs_options;
  ShowOptions show_options;
  CheckpointsOptions checkpoints_options;
  LogsOptions logs_options;
  StopOptions stop_options;
  EnvOptions env_options;
  Command chosen;
  add_run(app, run_options, chosen);
  add_runs(app, runs_options, chosen);
  add_show(app, show_options, chosen);
  add_checkpoints(app, checkpoints_options, chosen);
  add_logs(app, logs_options, chosen);
  add_stop(app, stop_options, chosen);
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
