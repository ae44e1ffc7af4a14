#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/export.h"
#include "trireme/value.h"

// Each configuration is one table: FIELD(type, name, default, description). The struct, Python's keyword arguments,
// defaults, repr, equality, JSON, type errors, the typed stub and docs/configuration.md are all derived from that
// table. PYTHON_FIELD is a field that only Python can hold (an object); the C++ struct omits it.

namespace trireme {

// Amounts by resource name: {"CPU": 2, "GPU": 0.5, "my_license": 1}.
using Resources = std::map<std::string, double>;

// Values by label.
using Labels = std::map<std::string, std::string>;

// A fixed number of workers, or a range for elastic runs.
struct WorkerCount {
  std::int64_t min = 1;
  std::int64_t max = 1;

  WorkerCount(int count = 1) : min(count), max(count) {}
  WorkerCount(std::int64_t count) : min(count), max(count) {}
  WorkerCount(std::int64_t least, std::int64_t most) : min(least), max(most) {}
  bool elastic() const { return min != max; }
  bool operator==(const WorkerCount&) const = default;
};

// Whether healthy workers keep their process in a restart of the gang: true, false or "auto" (default).
struct WarmRestart {
  std::optional<bool> always;  // nullopt: "auto"

  WarmRestart() = default;
  // Accepts only bool: a pointer, such as "auto", would convert to bool.
  template <std::same_as<bool> T>
  WarmRestart(T always) : always(always) {}
  bool automatic() const { return !always; }
  bool operator==(const WarmRestart&) const = default;
};

// An invalid configuration. The message names the field, the value and the accepted values.
class TRIREME_API ConfigError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// clang-format off
#define TRIREME_SCALING_CONFIG(FIELD, PYTHON_FIELD)                                                                    \
  FIELD(std::optional<Resources>, trainer_resources, {},                                                               \
        "Resources reserved for the trainer itself, in addition to the workers. None: {\"CPU\": 1}.")                  \
  FIELD(WorkerCount, num_workers, 1,                                                                                   \
        "Number of workers. (min, max): an elastic run. 0: local mode, the function runs in the driver process.")      \
  FIELD(bool, use_gpu, false,                                                                                          \
        "Reserve GPUs for every worker: one each, unless resources_per_worker sets another amount.")                   \
  FIELD(std::optional<Resources>, resources_per_worker, {},                                                            \
        "Resources reserved for each worker. None: {\"CPU\": 1}, plus {\"GPU\": 1} with use_gpu.")                     \
  FIELD(std::string, placement_strategy, "PACK",                                                                       \
        "How workers are distributed over nodes: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.")                         \
  FIELD(std::optional<std::string>, accelerator_type, {},                                                              \
        "Use only GPUs of this type, for example \"H100\". None: any type.")                                           \
  FIELD(std::optional<Labels>, label_selector, {},                                                                     \
        "Use only nodes with these labels, for example {\"region\": \"eu\"}, on engines that have labels (Ray). None: any node.") \
  FIELD(double, elastic_resize_monitor_interval_s, 60.0,                                                               \
        "Seconds between two checks for more capacity in an elastic run.")

#define TRIREME_FAILURE_CONFIG(FIELD, PYTHON_FIELD)                                                                    \
  FIELD(std::int64_t, max_failures, 0,                                                                                 \
        "Maximum number of restarts after worker failures. -1: unlimited; 0: the first failure ends the run.")         \
  FIELD(std::int64_t, controller_failure_limit, 3,                                                                     \
        "Maximum number of retries of a gang that could not be started. -1: unlimited.")                               \
  FIELD(std::int64_t, max_preemption_failures, -1,                                                                     \
        "Maximum number of restarts after a worker was lost to preemption. -1: unlimited.")                            \
  FIELD(WarmRestart, warm_restart, {},                                                                                 \
        "Which healthy workers keep their process in a restart. True: all; False: none; 'auto': those that hold expensive state (a CUDA context, libtorch in a C++ program). The others are replaced.") \
  FIELD(double, cancel_timeout_s, 5.0,                                                                                 \
        "Seconds that a healthy worker has to leave its function for a warm restart. After that, its process is replaced.") \
  FIELD(double, restart_backoff_s, 1.0,                                                                                \
        "Seconds to wait before the second restart in a row without progress. The wait doubles with each further restart; the first restart is immediate.") \
  FIELD(double, max_restart_backoff_s, 60.0, "Upper limit of the restart backoff, in seconds.")                        \
  FIELD(std::int64_t, repeated_error_limit, 3,                                                                         \
        "Fail the run when the same exception occurs this many times in a row at the same report. 0: disabled.")       \
  FIELD(std::optional<double>, hang_timeout_s, 1800.0,                                                                 \
        "Seconds without a report after which a gang counts as hanging. The stacks of all ranks are then written to the run folder. None: disabled.") \
  FIELD(std::string, on_hang, "warn", "Action when a gang hangs: 'warn', 'restart' (counts as a failure) or 'fail'.")  \
  FIELD(double, preemption_grace_s, 20.0,                                                                              \
        "Seconds that workers have for a last checkpoint when a preemption is announced without a deadline, such as by SIGTERM.")

#define TRIREME_CHECKPOINT_CONFIG(FIELD, PYTHON_FIELD)                                                                 \
  FIELD(std::optional<std::int64_t>, num_to_keep, {},                                                                  \
        "Number of checkpoints to keep: the best ones, or the newest ones without checkpoint_score_attribute. None: all.") \
  FIELD(std::optional<std::string>, checkpoint_score_attribute, {},                                                    \
        "Metric that ranks checkpoints; 'a/b' selects a nested metric. None: the newest is the best.")                 \
  FIELD(std::string, checkpoint_score_order, "max", "Whether a higher ('max') or a lower ('min') score is better.")    \
  FIELD(std::int64_t, checkpoint_frequency, 0,                                                                         \
        "For trainers with their own training loop: rounds between two checkpoints. 0: disabled.")                     \
  FIELD(std::optional<bool>, checkpoint_at_end, {},                                                                    \
        "For trainers with their own training loop: save a checkpoint after the last round. None: True.")              \
  FIELD(std::int64_t, max_uploads_in_flight, 2,                                                                        \
        "Maximum number of unfinished ASYNC checkpoint uploads per worker; report() blocks while it is reached.")      \
  FIELD(bool, keep_in_memory, false,                                                                                   \
        "Also keep the newest checkpoint created from a state in the host's memory. Restarted workers load it from there.") \
  FIELD(std::optional<double>, node_memory_gb, {},                                                                     \
        "On nodes that do not see the run folder: memory of each agent for checkpoints, in GB. None: a quarter of the node's memory. 0: checkpoints are committed when they are on the driver's disk.") \
  FIELD(bool, verify_on_resume, true,                                                                                  \
        "Verify the checksums of the checkpoint that the run resumes from. False: compare only file sizes.")

#define TRIREME_LOGGING_CONFIG(FIELD, PYTHON_FIELD)                                                                    \
  FIELD(std::string, log_level, "INFO",                                                                                \
        "Level of Trireme's own log messages: DEBUG, INFO, WARNING, ERROR or CRITICAL.")                               \
  FIELD(bool, worker_output, true,                                                                                     \
        "Show the output of workers in the driver's terminal. The log files always contain it.")

#define TRIREME_DATA_CONFIG(FIELD, PYTHON_FIELD)                                                                       \
  FIELD(Value, datasets_to_split, "all",                                                                               \
        "Datasets to divide among the workers: 'all' or a list of names. Every worker reads all rows of the others.")  \
  FIELD(bool, equal, false,                                                                                            \
        "Give every worker the same number of rows. Rows that cannot be divided evenly at the end of an epoch are dropped.") \
  FIELD(Value, memory_budget, nullptr,                                                                                 \
        "Memory limit for the data that one worker loads and prepares: a string such as '1GB' or a number of bytes. None: a quarter of the machine's memory divided by the number of its workers, at most 2GB.") \
  FIELD(std::optional<std::int64_t>, seed, {},                                                                         \
        "Seed for shuffled datasets without their own seed. None: a random seed, which is saved with the checkpoints.") \
  FIELD(std::optional<std::int64_t>, virtual_shards, {},                                                               \
        "Number of virtual shards: parts of an epoch that are read in parallel. 1: keeps the dataset's order, but every worker reads all files. None: chosen by the size of the dataset.") \
  FIELD(std::optional<std::int64_t>, num_threads, {},                                                                  \
        "Threads per worker that read data and assemble batches. None: 2, or 1 if the machine has fewer than two CPUs per worker.") \
  FIELD(bool, log_samples, false, "Log a digest of the rows that every worker reads, for `trireme data verify`.")

#define TRIREME_RUN_CONFIG(FIELD, PYTHON_FIELD)                                                                        \
  FIELD(std::optional<std::string>, name, {},                                                                          \
        "Name of the run and of its folder. If storage_path already has a run with this name, the run resumes (see resume). None: a name from the current date and time.") \
  FIELD(std::optional<std::string>, storage_path, {},                                                                  \
        "Folder or URI that contains the run folders. None: $TRIREME_RESULTS or ~/trireme_results.")                   \
  PYTHON_FIELD("Any", storage_filesystem, "A pyarrow.fs.FileSystem in which storage_path is a path.")                  \
  FIELD(std::string, resume, "auto",                                                                                   \
        "Whether to resume an existing run with this name. 'auto': if it exists; 'never': an existing run is an error; 'must': a missing run is an error.") \
  FIELD(FailureConfig, failure_config, {}, "How to handle failures.")                                                  \
  FIELD(CheckpointConfig, checkpoint_config, {}, "When to save checkpoints and which to keep.")                        \
  PYTHON_FIELD("Sequence[UserCallback]", callbacks, "UserCallback objects, called in the driver.")                     \
  FIELD(Dict, worker_runtime_env, {},                                                                                  \
        "Environment of the workers, in addition to the driver's: env_vars, working_dir, py_modules.")                 \
  FIELD(LoggingConfig, logging_config, {}, "What to log and to show in the terminal.")                                 \
  FIELD(std::vector<std::string>, preload, {},                                                                         \
        "Modules to import before workers start, in addition to those of the trainer's framework.")                    \
  FIELD(double, start_timeout_s, 120.0,                                                                                \
        "Seconds that a gang may wait for its resources, and then for all workers to start and connect.")              \
  FIELD(double, stop_grace_s, 5.0, "Seconds between SIGTERM and SIGKILL when a worker is stopped.")
// clang-format on

#define TRIREME_CONFIG_MEMBER(type, name, standard, doc) type name = standard;
#define TRIREME_CONFIG_NO_MEMBER(type, name, doc)
#define TRIREME_CONFIG_STRUCT(Name, TABLE)                 \
  struct Name {                                            \
    TABLE(TRIREME_CONFIG_MEMBER, TRIREME_CONFIG_NO_MEMBER) \
    bool operator==(const Name&) const = default;          \
  };

TRIREME_CONFIG_STRUCT(ScalingConfig, TRIREME_SCALING_CONFIG)
TRIREME_CONFIG_STRUCT(FailureConfig, TRIREME_FAILURE_CONFIG)
TRIREME_CONFIG_STRUCT(CheckpointConfig, TRIREME_CHECKPOINT_CONFIG)
TRIREME_CONFIG_STRUCT(LoggingConfig, TRIREME_LOGGING_CONFIG)
TRIREME_CONFIG_STRUCT(DataConfig, TRIREME_DATA_CONFIG)
TRIREME_CONFIG_STRUCT(RunConfig, TRIREME_RUN_CONFIG)

// Throw ConfigError if a value is invalid. fit() calls them first, as do Python's constructors.
TRIREME_API void validate(const ScalingConfig& config);
TRIREME_API void validate(const FailureConfig& config);
TRIREME_API void validate(const CheckpointConfig& config);
TRIREME_API void validate(const LoggingConfig& config);
TRIREME_API void validate(const DataConfig& config);
TRIREME_API void validate(const RunConfig& config);

}  // namespace trireme
