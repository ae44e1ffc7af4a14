#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/result.h"
#include "control/run_folder.h"
#include "control/run_registry.h"
#include "wire/message.h"

// One function per command. Each prints its output to stdout and returns errors, which main() prints.

namespace trireme::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;
inline constexpr int kNoPython = 127;

// The engine of a command, and its options as NAME=VALUE.
struct EngineArguments {
  std::optional<std::string> engine;
  std::vector<std::string> options;
};

struct RunOptions {
  std::optional<std::string> num_workers;  // "4" or "2,8"
  std::optional<double> num_cpus;
  std::optional<double> num_gpus;
  std::vector<std::string> preload;
  std::string ray_compat;  // "on" or "report": a script written for Ray Train
  EngineArguments engine;
  bool detach = false;
  std::vector<std::string> script;  // and its arguments
};
// Replaces this process by the script; returns only on failure.
base::Result<int> run(const RunOptions& options);

// What `trireme launch` passes to python/trireme/_launch.py; the descriptions are the help texts.
// clang-format off
#define TRIREME_LAUNCH_OPTIONS(FIELD)                                                                                  \
  FIELD(std::string, num_workers, "1", "Workers: N, MIN,MAX for an elastic run, or one per device: cpu, gpu, auto")    \
  FIELD(bool, module, false, "The script is a module name, as in python -m")                                           \
  FIELD(std::int64_t, max_failures, 0, "Restart after up to N failures; -1: unlimited")                                \
  FIELD(std::optional<std::int64_t>, num_to_keep, {}, "Keep at most N checkpoints (default: all)")                     \
  FIELD(std::optional<std::string>, name, {}, "Name of the run; the name of an existing run continues it")             \
  FIELD(std::optional<std::string>, storage_path, {}, "Where run folders are stored: a folder or a URI")               \
  FIELD(bool, use_gpu, false, "Reserve one GPU per worker, cuda:LOCAL_RANK")                                           \
  FIELD(std::optional<std::int64_t>, gpus_per_worker, {}, "GPUs per worker")                                           \
  FIELD(double, cpus_per_worker, 1, "CPUs per worker, and its OMP_NUM_THREADS (default: 1)")                           \
  FIELD(std::vector<std::string>, preload, {}, "Module to import before workers are forked; may be repeated")          \
  FIELD(Variables, env, {}, "NAME=VALUE in the workers' environment; may be repeated")
// clang-format on
using Variables = std::map<std::string, std::string>;
TRIREME_STRUCT(LaunchOptions, TRIREME_LAUNCH_OPTIONS)

struct LaunchCommand {
  LaunchOptions options;
  std::vector<std::string> assignments;  // NAME=VALUE, for options.env
  std::optional<double> num_cpus;
  std::optional<double> num_gpus;
  std::optional<std::string> nnodes;
  EngineArguments engine;
  bool detach = false;
  std::vector<std::string> script;  // or a module, and its arguments
};
// Replaces this process by the driver of the workers; returns only on failure.
base::Result<int> launch(LaunchCommand command);
// The error in an option's value; empty if valid.
std::string worker_count_problem(const std::string& text);
std::string variable_problem(const std::string& text);

struct PortOptions {
  bool write = false;
  std::vector<std::string> scripts;
};
// Replaces this process by python/trireme/compat/port; returns only on failure.
base::Result<int> port(const PortOptions& options);

struct RunsOptions {
  bool all = false;
  bool json = false;
};
base::Result<int> runs(const RunsOptions& options);

struct ShowOptions {
  std::string run;
  bool json = false;
};
base::Result<int> show(const ShowOptions& options);

struct CheckpointsOptions {
  std::string run;
  bool verify = false;
  bool json = false;
};
// kFailed if a checkpoint is damaged.
base::Result<int> checkpoints(const CheckpointsOptions& options);

struct DataVerifyOptions {
  std::string run;
  bool json = false;
};
// kFailed unless every row was taken exactly once.
base::Result<int> data_verify(const DataVerifyOptions& options);

struct LogsOptions {
  std::string run;
  std::optional<int> rank;
  std::optional<int> attempt;
  bool follow = false;
  std::optional<std::size_t> lines;
};
base::Result<int> logs(const LogsOptions& options);

struct StopOptions {
  std::string run;  // may be empty for a detached script
  bool hard = false;
};
base::Result<int> stop(const StopOptions& options);

struct StackOptions {
  std::string run;
};
base::Result<int> stack(const StackOptions& options);

struct PreemptOptions {
  std::string run;
  std::optional<double> deadline;  // in seconds; default: the run's preemption_grace_s
  std::vector<int> ranks;          // empty: all ranks
  std::string why;
};
base::Result<int> preempt(const PreemptOptions& options);

struct CapacityOptions {
  std::string run;  // empty: all active runs
  std::optional<double> num_cpus;
  std::optional<double> num_gpus;
  std::vector<std::string> resources;  // NAME=AMOUNT
};
// kFailed if a run refuses the change; its capacity is unchanged then.
base::Result<int> capacity(const CapacityOptions& options);
// The error in an option's value; empty if valid.
std::string amount_problem(const std::string& text);
std::string resource_problem(const std::string& text);

// For the process that this one becomes.
void set_engine(const EngineArguments& arguments);

// Where the driver of a run is: on this machine, or that of a detached script on an engine.
struct DriverArguments {
  EngineArguments engine;
  std::string job;  // empty: the only one
  bool empty() const { return !engine.engine && engine.options.empty() && job.empty(); }
};
// Replaces this process by one that executes this command, without its arguments for the driver, beside the driver.
base::Result<int> at_driver(const DriverArguments& driver, std::vector<std::string> words);

// Serves a driver on this node until it ends; the ticket is read from standard input.
base::Result<int> agent();

struct ManifestOptions {
  std::string kind = "job";  // job, jobset or rayjob
  std::string name = "trireme";
  std::string name_space;  // empty: that of the kubectl command
  std::string image;
  int nodes = 1;
  double num_cpus = 4;  // of each node
  int num_gpus = 0;
  std::string memory = "16Gi";
  std::string claim;  // a volume that all nodes share
  std::string mount;  // its path in the containers
  std::vector<std::string> script;
};
base::Result<int> manifest(const ManifestOptions& options);
std::string kubernetes_name_problem(const std::string& text);

struct EnvOptions {
  bool json = false;
  EngineArguments engine;
};
base::Result<int> env(const EnvOptions& options);

// A run and the content of its folder. An empty `what` means the newest run.
struct FoundRun {
  control::RunEntry entry;
  control::RunRecord record;
  control::RunSummary summary;
};
base::Result<control::RunEntry> find_entry(const std::string& what);
base::Result<FoundRun> find(const std::string& what);

// A run whose controller is reachable from this machine.
base::Result<control::RunEntry> find_active(const std::string& what);
// The controller's reply; a refusal is an error with the controller's message.
base::Result<Value> ask(const control::RunEntry& entry, const wire::Message& request);

}  // namespace trireme::cli

namespace trireme::base {
TRIREME_STRUCT_FIELDS(cli::LaunchOptions, TRIREME_LAUNCH_OPTIONS)
}  // namespace trireme::base
