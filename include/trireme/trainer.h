#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>

#include "trireme/config.h"
#include "trireme/context.h"
#include "trireme/data.h"
#include "trireme/export.h"
#include "trireme/result.h"

// The driver's side. The workers of a C++ program run the same binary: main() must call init() first.

namespace trireme {

struct InitOptions {
  // Declared capacity is a hard limit. Undeclared CPUs are time-shared; undeclared GPUs are detected.
  // $TRIREME_NUM_CPUS, $TRIREME_NUM_GPUS and $TRIREME_RESOURCES are the defaults for values that are not set.
  std::optional<double> num_cpus = {};
  std::optional<double> num_gpus = {};
  std::optional<Resources> resources = {};
  // Where workers run: "local", "hosts:a,b", "ray", "slurm", or the path of an adapter. Empty: $TRIREME_ENGINE, or this
  // machine. `trireme run --engine` takes precedence. docs/clusters.md describes the options of each.
  std::string engine = {};
  Dict engine_options = {};
};

// In a worker process, runs the driver's training function and does not return.
TRIREME_API void init(int argc, char** argv, const InitOptions& options = {});
// The part of this machine that runs may use. Can change while runs are active: elastic runs grow and shrink with it.
// Values that are not set stay unchanged. Thread-safe. Throws ConfigError, and changes nothing, if active runs need
// more.
struct Capacity {
  std::optional<double> num_cpus = {};
  std::optional<double> num_gpus = {};
  Resources resources = {};
};
TRIREME_API void set_capacity(const Capacity& capacity);
// Releases what init() and fit() keep between runs. Called automatically at program exit.
TRIREME_API void shutdown();

using TrainFunction = std::function<Value(const Config&)>;

// Accepts functions with or without a Config parameter, and with or without a return value.
template <typename F>
TrainFunction make_train_function(F function) {
  if constexpr (std::is_invocable_v<F&, const Config&>) {
    return [function](const Config& config) mutable -> Value {
      if constexpr (std::is_void_v<std::invoke_result_t<F&, const Config&>>) {
        function(config);
        return {};
      } else {
        return function(config);
      }
    };
  } else {
    static_assert(std::is_invocable_v<F&>, "a training function takes nothing, or a const trireme::Config&");
    return [function](const Config&) mutable -> Value {
      if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
        function();
        return {};
      } else {
        return function();
      }
    };
  }
}

// The address that identifies a registered function; nullptr for lambdas with captures and other function objects.
template <typename F>
const void* address_of(const F& function) {
  if constexpr (std::is_pointer_v<F>) {
    return reinterpret_cast<const void*>(function);
  } else {
    return nullptr;
  }
}

struct TrainerOptions {
  Config config = {};
  // By name, for get_dataset_shard(). Workers run main() again to create them.
  std::map<std::string, Dataset> datasets = {};
  DataConfig dataset_config = {};
  ScalingConfig scaling = {};
  RunConfig run = {};
  std::optional<Checkpoint> resume_from_checkpoint = {};
  Dict metadata = {};
  // false: each worker sees only its own GPUs, and the first is device 0. true: it sees the GPUs of all workers on its
  // node, ordered so that device `local_rank` is its own; see docs/gpu.md.
  bool share_cuda_visible_devices = false;
  // For trainers with their own training loop, which saves checkpoints as CheckpointConfig.checkpoint_frequency and
  // checkpoint_at_end say. Otherwise these fields are refused.
  bool owns_loop = false;
};

class TRIREME_API DataParallelTrainer {
 public:
  template <typename F>
  DataParallelTrainer(F function, TrainerOptions options = {})
      : DataParallelTrainer(make_train_function(function), address_of(function), std::move(options)) {}

  // Blocks until the run ends. Throws ConfigError before anything is started, and TrainingFailedError if the run does
  // not finish. Only one fit() at a time per process, and not inside a training function.
  Result fit();

  // Whether the folder (a path or a URI) contains a run that can be resumed.
  static bool can_restore(const std::string& path);
  // A trainer that resumes the run in that folder. Name, storage and configurations are restored from the run; the
  // function, its config and the datasets must be passed again. Throws std::runtime_error if there is no run.
  template <typename F>
  static DataParallelTrainer restore(const std::string& path, F function, Config config = {},
                                     std::map<std::string, Dataset> datasets = {}, DataConfig dataset_config = {}) {
    TrainerOptions options = restored_options(path);
    options.config = std::move(config);
    options.datasets = std::move(datasets);
    options.dataset_config = std::move(dataset_config);
    return DataParallelTrainer(std::move(function), std::move(options));
  }

 private:
  static TrainerOptions restored_options(const std::string& path);
  DataParallelTrainer(TrainFunction function, const void* address, TrainerOptions options);

  TrainFunction function_;
  const void* address_;
  TrainerOptions options_;
};

// Registers a function that workers can call directly. Unregistered functions, including lambdas, also work: their
// workers run main() again, up to the same fit().
class TRIREME_API FunctionRegistration {
 public:
  FunctionRegistration(const char* name, const void* address, TrainFunction function);
};

#define TRIREME_JOIN_WORDS(a, b) a##b
#define TRIREME_UNIQUE_NAME(prefix, number) TRIREME_JOIN_WORDS(prefix, number)
#define TRIREME_TRAIN_FUNCTION(function)                                                                \
  static const ::trireme::FunctionRegistration TRIREME_UNIQUE_NAME(trireme_registration_, __COUNTER__)( \
      #function, ::trireme::address_of(&function), ::trireme::make_train_function(&function))

}  // namespace trireme
