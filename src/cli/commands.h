#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/run_folder.h"
#include "control/run_registry.h"

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

}  // namespace trireme::cli
