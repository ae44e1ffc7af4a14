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

// Every configuration is one table: FIELD(type, name, default, what it means). The struct below it, Python's keyword
// arguments, defaults, repr, equality, JSON, type errors, the typed stub and docs/configuration.md all come from that
// table. PYTHON_FIELD is a field that only Python can hold (an object), so the C++ struct leaves it out.

namespace trireme {

// Amounts by resource name: {"CPU": 2, "GPU": 0.5, "my_license": 1}.
using Resources = std::map<std::string, double>;

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

// Whether healthy workers keep their process when the gang is started again: true, false, or, by default, "auto".
struct WarmRestart {
  std::optional<bool> always;  // nothing: "auto"

  WarmRestart() = default;
  // Of a bool only: a pointer, such as "auto", would become one.
  template <std::same_as<bool> T>
  WarmRestart(T always) : always(always) {}
  bool automatic() const { return !always; }
  bool operator==(const WarmRestart&) const = default;
};

// A configuration that cannot work: names the field, the value and what is accepted.
class TRIREME_API ConfigError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// clang-format off
#define TRIREME_SCALING_CONFIG(FIELD, PYTHON_FIELD)                                                                    \
  FIELD(std::optional<Resources>, trainer_resources, {},                                                               \
        "What the trainer itself takes, beside the workers; {\"CPU\": 1} when not given.")                             \
  FIELD(WorkerCount, num_workers, 1,                                                                                   \
        "How many workers; (min, max) for an elastic run; 0 runs the function in this very process.")                  \
  FIELD(bool, use_gpu, false, "Give every worker a GPU (one, unless resources_per_worker says otherwise).")            \
  FIELD(std::optional<Resources>, resources_per_worker, {},                                                            \
        "What one worker takes; {\"CPU\": 1}, or {\"CPU\": 1, \"GPU\": 1} with use_gpu, when not given.")              \
  FIELD(std::string, placement_strategy, "PACK",                                                                       \
        "How workers are laid over nodes: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.")                                \
  FIELD(std::optional<std::string>, accelerator_type, {},                                                              \
        "Only use nodes whose GPUs are of this type, for example \"H100\".")                                           \
  FIELD(double, elastic_resize_monitor_interval_s, 60.0, "How often an elastic run looks for more capacity.")

#define TRIREME_FAILURE_CONFIG(FIELD, PYTHON_FIELD)                                                                    \
  FIELD(std::int64_t, max_failures, 0,                                                                                 \
        "How many times a failed gang is started again; -1 for without end.")                                          \
  FIELD(std::int64_t, controller_failure_limit, 3,                                                                     \
        "How many times a gang that could not be started is tried again; -1 for without end.")                         \
  FIELD(std::int64_t, max_preemption_failures, -1,                                                                     \
        "How many times a gang that lost a worker to preemption is started again; -1 for without end.")                \
  FIELD(WarmRestart, warm_restart, {},                                                                                 \
        "Which healthy workers keep their process when the gang is started again: True: all; False: none; 'auto': those that hold something expensive (a CUDA context, libtorch in a C++ program). The others are replaced.") \
  FIELD(double, cancel_timeout_s, 5.0,                                                                                 \
        "How long a worker that is well may take to leave its function for a restart, before it is replaced too.")     \
  FIELD(double, restart_backoff_s, 1.0,                                                                                \
        "The pause before the second restart in a row without any progress; doubles with each. The first has none.")   \
  FIELD(double, max_restart_backoff_s, 60.0, "The longest such pause.")                                                \
  FIELD(std::int64_t, repeated_error_limit, 3,                                                                         \
        "Stop when the same exception has come this many times in a row at the same report; 0 for never.")             \
  FIELD(std::optional<double>, hang_timeout_s, 1800.0,                                                                 \
        "Without a report for so long a gang counts as hanging: the stacks of all ranks are written down. None for never.") \
  FIELD(std::string, on_hang, "warn", "What follows then: 'warn', 'restart' (a failure like others) or 'fail'.")       \
  FIELD(double, preemption_grace_s, 20.0,                                                                              \
        "How long workers have for a last checkpoint after a SIGTERM, where nobody said how long.")

#define TRIREME_CHECKPOINT_CONFIG(FIELD, PYTHON_FIELD)                                                                 \
  FIELD(std::optional<std::int64_t>, num_to_keep, {}, "Keep this many checkpoints, the best or the newest; all when not given.") \
  FIELD(std::optional<std::string>, checkpoint_score_attribute, {},                                                    \
        "The metric that ranks checkpoints; 'a/b' reaches into nested metrics. Newest is best when not given.")        \
  FIELD(std::string, checkpoint_score_order, "max", "Whether a higher ('max') or a lower ('min') score is better.")    \
  FIELD(std::int64_t, checkpoint_frequency, 0,                                                                         \
        "For trainers that own their loop: a checkpoint every so many rounds; 0 for none on the way.")                 \
  FIELD(std::optional<bool>, checkpoint_at_end, {}, "For trainers that own their loop: a checkpoint after the last round.") \
  FIELD(std::int64_t, max_uploads_in_flight, 2,                                                                        \
        "How many checkpoints of one worker may be on their way to storage (ASYNC) before report() waits.")            \
  FIELD(bool, keep_in_memory, false,                                                                                   \
        "Keep the newest checkpoint made from a state in the machine's memory too: a restarted worker loads it from there.") \
  FIELD(bool, verify_on_resume, true,                                                                                  \
        "Read the checkpoint that a run is continued from and compare checksums; sizes only when false.")

#define TRIREME_LOGGING_CONFIG(FIELD, PYTHON_FIELD)                                                                    \
  FIELD(std::string, log_level, "INFO", "What Trireme itself logs: DEBUG, INFO, WARNING, ERROR or CRITICAL.")          \
  FIELD(bool, worker_output, true, "Show what workers print in the driver's terminal; the log files have it either way.")

#define TRIREME_DATA_CONFIG(FIELD, PYTHON_FIELD)                                                                       \
  FIELD(Value, datasets_to_split, "all",                                                                               \
        "Which datasets are divided among the workers: 'all' or a list of names; the others are seen whole by each.")  \
  FIELD(bool, equal, false,                                                                                            \
        "Give every worker the same number of rows: what does not divide at the end of an epoch is left out.")         \
  FIELD(Value, memory_budget, nullptr,                                                                                 \
        "What the data of one worker may take in memory on its way, as '1GB' or a number of bytes; None: a fourth of the machine's divided by its workers, 2GB at most.") \
  FIELD(std::optional<std::int64_t>, seed, {},                                                                         \
        "Of the order of shuffled datasets that have no seed of their own; drawn, and kept with the checkpoints, when not given.") \
  FIELD(std::optional<std::int64_t>, virtual_shards, {},                                                               \
        "Into how many parts an epoch is cut that are read side by side; 1 keeps the dataset's own order and lets every worker read all files. By the dataset when not given.") \
  FIELD(std::optional<std::int64_t>, num_threads, {},                                                                  \
        "How many threads of a worker read and put batches together; 2 when not given, 1 where a worker has one CPU to itself.") \
  FIELD(bool, log_samples, false,                                                                                      \
        "Log a digest of the rows that every worker takes, for `trireme data verify`.")

#define TRIREME_RUN_CONFIG(FIELD, PYTHON_FIELD)                                                                        \
  FIELD(std::optional<std::string>, name, {},                                                                          \
        "The run's name and folder; the same name in the same storage_path continues that run. Dated when not given.") \
  FIELD(std::optional<std::string>, storage_path, {},                                                                  \
        "Where run folders lie; $TRIREME_RESULTS or ~/trireme_results when not given.")                                \
  PYTHON_FIELD("Any", storage_filesystem, "A pyarrow.fs.FileSystem that storage_path is a path in.")                   \
  FIELD(std::string, resume, "auto",                                                                                   \
        "Whether a run of this name is continued: 'auto' where there is one, 'never' (refused then), 'must' (refused where there is none).") \
  FIELD(FailureConfig, failure_config, {}, "What to do when something breaks.")                                        \
  FIELD(CheckpointConfig, checkpoint_config, {}, "Which checkpoints to keep.")                                         \
  PYTHON_FIELD("Sequence[UserCallback]", callbacks, "UserCallback objects, called in the driver.")                     \
  FIELD(Dict, worker_runtime_env, {},                                                                                  \
        "What workers start with beside the driver's own: env_vars, working_dir, py_modules.")                         \
  FIELD(LoggingConfig, logging_config, {}, "What is logged and shown.")                                                \
  FIELD(std::vector<std::string>, preload, {},                                                                         \
        "Modules that workers find already imported, beside those of the trainer's framework.")                        \
  FIELD(double, start_timeout_s, 120.0, "How long a gang may take from reservation to the last worker's hello.")       \
  FIELD(double, stop_grace_s, 5.0, "How long a worker may take to end after it was asked to, before it is killed.")
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

// Throw ConfigError where a value cannot work. fit() calls them first; Python's constructors do too.
TRIREME_API void validate(const ScalingConfig& config);
TRIREME_API void validate(const FailureConfig& config);
TRIREME_API void validate(const CheckpointConfig& config);
TRIREME_API void validate(const LoggingConfig& config);
TRIREME_API void validate(const DataConfig& config);
TRIREME_API void validate(const RunConfig& config);

// Whether a trainer that owns its loop makes a checkpoint after this round, counted from 1: every checkpoint_frequency
// rounds, and after the last one unless checkpoint_at_end is false.
TRIREME_API bool checkpoint_due(const CheckpointConfig& config, std::int64_t round, bool last);

}  // namespace trireme
