#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/run_folder.h"
#include "control/run_registry.h"
#include "wire/message.h"

// One function per command. Each prints to stdout what was asked for; a failure comes back and main() prints it.

namespace trireme::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;
inline constexpr int kNoPython = 127;

struct RunOptions {
  std::optional<std::string> num_workers;  // "4" or "2,8"
  std::optional<double> num_cpus;
  std::optional<double> num_gpus;
  std::vector<std::string> preload;
  std::vector<std::string> script;  // and its arguments
};
// Becomes the script; returns only when that is not possible.
base::Result<int> run(const RunOptions& options);

struct LaunchOptions {
  std::string num_workers = "1";  // or "2,8", "cpu", "gpu", "auto"
  bool module = false;
  std::optional<std::int64_t> max_failures;
  std::optional<std::int64_t> num_to_keep;
  std::optional<std::string> name;
  std::optional<std::string> storage_path;
  bool use_gpu = false;
  std::optional<std::int64_t> gpus_per_worker;
  std::optional<double> cpus_per_worker;
  std::optional<double> num_cpus;
  std::optional<double> num_gpus;
  std::vector<std::string> preload;
  std::vector<std::string> env;  // NAME=VALUE
  std::optional<std::string> nnodes;
  std::vector<std::string> script;  // or a module, and its arguments
};
// Becomes the driver of the workers; returns only when that is not possible.
base::Result<int> launch(const LaunchOptions& options);
// What is wrong with an option's value; empty where nothing is.
std::string worker_count_problem(const std::string& text);
std::string variable_problem(const std::string& text);

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
// kFailed where one is damaged.
base::Result<int> checkpoints(const CheckpointsOptions& options);

struct DataVerifyOptions {
  std::string run;
  bool json = false;
};
// kFailed where a row was not taken exactly once.
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
  std::string run;
  bool hard = false;
};
base::Result<int> stop(const StopOptions& options);

struct StackOptions {
  std::string run;
};
base::Result<int> stack(const StackOptions& options);

struct PreemptOptions {
  std::string run;
  std::optional<double> deadline;  // in seconds; the run's own grace when not given
  std::vector<int> ranks;          // all when empty
  std::string why;
};
base::Result<int> preempt(const PreemptOptions& options);

struct CapacityOptions {
  std::string run;  // all that are running when empty
  std::optional<double> num_cpus;
  std::optional<double> num_gpus;
  std::vector<std::string> resources;  // NAME=AMOUNT
};
// kFailed where a run refuses; it stays as it is then.
base::Result<int> capacity(const CapacityOptions& options);
// What is wrong with an option's value; empty where nothing is.
std::string amount_problem(const std::string& text);
std::string resource_problem(const std::string& text);

struct EnvOptions {
  bool json = false;
};
base::Result<int> env(const EnvOptions& options);

// A run and what its folder says. An empty `what` is the newest run.
struct FoundRun {
  control::RunEntry entry;
  control::RunRecord record;
  control::RunSummary summary;
};
base::Result<control::RunEntry> find_entry(const std::string& what);
base::Result<FoundRun> find(const std::string& what);

// A run whose controller can be asked something.
base::Result<control::RunEntry> find_active(const std::string& what);
// Its answer; a refusal is an error with the controller's own words.
base::Result<Value> ask(const control::RunEntry& entry, const wire::Message& request);

}  // namespace trireme::cli
