#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/export.h"
#include "trireme/value.h"

// A training job of a boosting library as its trainer describes it, in both languages, and the checks before any worker
// starts: trireme::boosting and Python's trireme.xgboost and trireme.lightgbm accept and refuse the same jobs.

namespace trireme {

struct BoostingJob {
  std::string library;  // "xgboost" or "lightgbm"
  Dict params = {};     // the library's
  Value num_boost_round = 10;
  std::string label_column = {};
  std::string weight_column = {};                     // empty: none
  std::string group_column = {};                      // of the query that a row belongs to, for ranking; empty: none
  std::vector<std::string> categorical_columns = {};  // besides those of the kind "category"
  Value early_stopping_rounds = {};                   // null: none
  bool external_memory = false;                       // XGBoost: quantized rows are in files
  int min_workers = 1;
  int max_workers = 1;
  double cpus_per_worker = 1;
  bool use_gpu = false;
  std::string train = "train";  // the dataset to train on
  // By name: {"rows": int, "columns": {name: "number", "category", "string" or the name of another type}}, and
  // {"groups": int} if it is known: the number of query groups, or a smaller number that is enough for all workers.
  Dict datasets = {};
};

struct CheckedBoostingJob {
  Dict params;                           // with what the workers imply
  std::vector<std::string> corrections;  // one line each, for the log
  std::vector<std::string> features;     // the columns to train on, in the order of the dataset "train"
  std::vector<std::string> categorical;  // those of them that are categorical
  // The parameters with which a resumed model differs from one of an undisturbed run.
  std::vector<std::string> unrepeatable;
};

// Throws ConfigError.
TRIREME_API CheckedBoostingJob check_boosting_job(const BoostingJob& job);

// The changes of LightGBM's parameters before a round, one after another. LightGBM cannot store the state of its random
// numbers: with sampling, every round has seeds of its own, so that a resumed run draws what an undisturbed one draws.
TRIREME_API std::vector<Dict> lightgbm_round_params(const Dict& params, std::int64_t round);
// Whether LightGBM can continue a model with these parameters. Otherwise a resumed run begins with the first round.
TRIREME_API bool lightgbm_continues(const Dict& params);

// A local folder, removed at the end of the scope. If the process is killed, it is removed when the next one is created
// or the next run starts.
class TRIREME_API TemporaryFolder {
 public:
  // Throws std::runtime_error.
  TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::shared_ptr<const void> folder_;
  std::string path_;
};

}  // namespace trireme
