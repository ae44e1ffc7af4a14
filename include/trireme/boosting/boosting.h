#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/trainer.h"

// Boosted trees from C++: find_package(trireme COMPONENTS boosting), target trireme::boosting. The trainer has its own
// training loop, the same as Python's trireme.xgboost.XGBoostTrainer(params=..., ...): the models are equal byte by
// byte, and each language resumes from checkpoints of the other.

namespace trireme::boosting {

struct BoostingOptions {
  Dict params = {};  // the library's
  std::int64_t num_boost_round = 10;
  std::string label_column = {};
  std::optional<std::string> weight_column = {};
  // The shared library. Default: $TRIREME_XGBOOST_LIBRARY, then the one of the pip package that CMake has found, then
  // libxgboost.so on the loader's path.
  std::optional<std::string> library = {};
  // "train", and datasets to evaluate after every round. Their metrics are reported as "<name>-<metric>".
  std::map<std::string, Dataset> datasets = {};
  DataConfig dataset_config = {};
  ScalingConfig scaling = {};
  // CheckpointConfig's checkpoint_frequency and checkpoint_at_end take effect.
  RunConfig run = {};
  std::optional<Checkpoint> resume_from_checkpoint = {};
  Dict metadata = {};
};

// A checkpoint contains model.ubj.
class TRIREME_API XgboostTrainer {
 public:
  explicit XgboostTrainer(BoostingOptions options) : options_(std::move(options)) {}

  // Throws ConfigError before anything is started, and TrainingFailedError if the run does not finish.
  Result fit() const;

 private:
  BoostingOptions options_;
};

}  // namespace trireme::boosting
