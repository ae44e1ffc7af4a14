#pragma once

#include "trireme/boosting_job.h"

namespace trireme::api {

// Adds to `checked` the params of XGBoost and LightGBM that follow from the workers, and refuses those that contradict
// them.
void check_xgboost_params(const BoostingJob& job, CheckedBoostingJob& checked);
void check_lightgbm_params(const BoostingJob& job, CheckedBoostingJob& checked);

// The parameters that make LightGBM draw random numbers that depend on earlier rounds.
std::vector<std::string> lightgbm_unrepeatable(const Dict& params);

}  // namespace trireme::api
