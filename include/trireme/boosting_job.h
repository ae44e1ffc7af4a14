#pragma once

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
  std::string weight_column = {};  // empty: none
  std::string group_column = {};   // of the query that a row belongs to, for ranking; empty: none
  int min_workers = 1;
  int max_workers = 1;
  double cpus_per_worker = 1;
  bool use_gpu = false;
  // By name: {"rows": int, "columns": {name: "number", "category", "string" or the name of another type}}.
  Dict datasets = {};
};

struct CheckedBoostingJob {
  Dict params;                           // with what the workers imply
  std::vector<std::string> corrections;  // one line each, for the log
  std::vector<std::string> features;     // the columns to train on, in the order of the dataset "train"
};

// Throws ConfigError.
TRIREME_API CheckedBoostingJob check_boosting_job(const BoostingJob& job);

}  // namespace trireme
