#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/trainer.h"

// Boosted trees from C++: find_package(trireme COMPONENTS boosting), target trireme::boosting. The trainers have their
// own training loops, the same as Python's trireme.xgboost.XGBoostTrainer(params=..., ...) and
// trireme.lightgbm.LightGBMTrainer: the models are equal byte by byte, and each language resumes from checkpoints of
// the other.

namespace trireme::boosting {

struct BoostingOptions {
  Dict params = {};  // the library's
  std::int64_t num_boost_round = 10;
  std::string label_column = {};
  std::optional<std::string> weight_column = {};
  // The query of each row, for ranking: strings or integers. All rows of a query are on one worker.
  std::optional<std::string> group_column = {};
  // Columns of strings or integers whose values have no order, besides those with Arrow dictionaries.
  std::vector<std::string> categorical_columns = {};
  // Stop if no metric (XGBoost: the last metric of the last dataset) has improved in this number of rounds.
  std::optional<std::int64_t> early_stopping_rounds = {};
  // Report the metrics of "train" too. LightGBM's are those of the worker's own rows.
  bool evaluate_train = false;
  // XGBoost: keep the quantized rows in temporary files instead of memory.
  bool external_memory = false;
  // The shared library. Default: $TRIREME_XGBOOST_LIBRARY or $TRIREME_LIGHTGBM_LIBRARY, then the one of the pip package
  // that CMake has found, then libxgboost.so or lib_lightgbm.so on the loader's path.
  std::optional<std::string> library = {};
  // "train", and datasets to evaluate after every round, in alphabetical order. Their metrics are reported as
  // "<name>-<metric>".
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

// A checkpoint contains model.txt. Every worker evaluates the complete datasets, because LightGBM does not combine the
// metrics of workers.
class TRIREME_API LightgbmTrainer {
 public:
  explicit LightgbmTrainer(BoostingOptions options) : options_(std::move(options)) {}

  // Throws ConfigError before anything is started, and TrainingFailedError if the run does not finish.
  Result fit() const;

 private:
  BoostingOptions options_;
};

}  // namespace trireme::boosting
