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

// The driver's side. Workers of a C++ program are the same binary, executed again: main() must call init() first.

namespace trireme {

struct InitOptions {
  // Declared capacity is a hard limit. CPUs that are not declared are time-shared; GPUs are looked for.
  // $TRIREME_NUM_CPUS, $TRIREME_NUM_GPUS and $TRIREME_RESOURCES stand in for what is not given.
  std::optional<double> num_cpus = {};
  std::optional<double> num_gpus = {};
  std::optional<Resources> resources = {};
  std::string engine = "local";
};

// In a worker process this runs the training function that the driver named and does not return.
TRIREME_API void init(int argc, char** argv, const InitOptions& options = {});
// How much of this machine runs may use, changed while they go on; what is not given stays. Elastic runs grow and
// shrink with it. Safe from any thread. Throws ConfigError, and changes nothing, where runs need more.
struct Capacity {
  std::optional<double> num_cpus = {};
  std::optional<double> num_gpus = {};
  Resources resources = {};
};
TRIREME_API void set_capacity(const Capacity& capacity);
// Ends what init() and fit() keep between runs. Called by itself when the program ends.
TRIREME_API void shutdown();

using TrainFunction = std::function<Value(const Config&)>;

// Accepts functions with and without a Config and with and without a result.
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

// The address by which a registered function is known; nullptr for lambdas with captures and other objects.
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
  // By name, for get_dataset_shard(). Workers go through main() again to make them.
  std::map<std::string, Dataset> datasets = {};
  DataConfig dataset_config = {};
  ScalingConfig scaling = {};
  RunConfig run = {};
  std::optional<Checkpoint> resume_from_checkpoint = {};
  Dict metadata = {};
};

class TRIREME_API DataParallelTrainer {
 public:
  template <typename F>
  DataParallelTrainer(F function, TrainerOptions options = {})
      : DataParallelTrainer(make_train_function(function), address_of(function), std::move(options)) {}

  // Runs to the end. Throws ConfigError before anything is started, TrainingFailedError where the run did not finish.
  // One at a time in a process, and not inside of a training function.
  Result fit();

  // Whether there is a run in that folder (a path or a URI) that can be continued.
  static bool can_restore(const std::string& path);
  // A trainer that continues the run in that folder: name, storage and configurations are the run's own, the function,
  // its config and the datasets are given again. Throws std::runtime_error where there is no run.
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

// A function that workers can start straight away. Functions that are not registered, lambdas among them, work too:
// their workers go through main() again, up to the same fit().
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
