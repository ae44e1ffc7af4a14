#pragma once

#include <functional>
#include <string>

#include "trireme/value.h"

namespace trireme::boosting {

// Reports the metrics of every round, and checkpoints with the model. All ranks have the same model: rank 0 saves it.
class RoundReporter {
 public:
  using Save = std::function<void(const std::string& path)>;

  // `file`: of the model in a checkpoint. `save`: writes the model. `metadata`: what a checkpoint keeps besides it.
  RoundReporter(const Config& config, std::string file, Save save, std::function<Dict()> metadata);

  // `rounds`: how many the model has. Returns whether a checkpoint was saved.
  bool after_round(std::int64_t rounds, Metrics metrics);
  void after_training(std::int64_t rounds);

 private:
  void report_checkpoint(std::int64_t rounds);

  std::int64_t frequency_;
  bool at_end_;
  std::string file_;
  Save save_;
  std::function<Dict()> metadata_;
  Metrics last_;
  std::int64_t saved_rounds_ = 0;
};

// Rank 0 warns that the resumed model is not identical, if parameters draw random numbers that are not stored.
void warn_of_random_numbers(const std::string& library, const Config& config);

}  // namespace trireme::boosting
