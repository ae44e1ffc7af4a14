#pragma once

#include <functional>

#include "boosting/worker_rows.h"
#include "trireme/boosting/boosting.h"

namespace trireme::boosting {

// Checks the options and runs `train` on the workers, with a config that describes the job. `library`: "xgboost" or
// "lightgbm". `load`: throws ConfigError if it cannot be loaded.
Result run_boosting(const std::string& library, const BoostingOptions& options, void (*train)(const Config&),
                    const std::function<void()>& load);

// On a worker: the columns of the job, with the categories that all workers agree on. Collective.
RowColumns job_columns(const Config& config);
// The names of the datasets to evaluate.
std::vector<std::string> evaluated_datasets(const Config& config);

}  // namespace trireme::boosting
