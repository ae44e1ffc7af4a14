#pragma once

#include <optional>
#include <string>

#include "boosting/xgboost_booster.h"
#include "trireme/value.h"

namespace trireme::boosting {

// Early stopping by the last metric of the last dataset, as xgboost.callback.EarlyStopping does it, with the same
// attributes of the model. Its state is part of a checkpoint, in the form that Python reads.
class XgboostStopping {
 public:
  // `rounds`: without an improvement; 0: never stops. `checkpoint`: its metadata.
  XgboostStopping(std::int64_t rounds, const Dict& checkpoint);

  bool has_stopped() const { return rounds_ > 0 && current_ >= rounds_; }
  // Whether to stop after this round.
  bool after_round(int round, const Metrics& metrics, XgboostBooster& booster);
  Dict metadata() const;

 private:
  std::int64_t rounds_;
  std::int64_t current_ = 0;
  std::optional<bool> maximize_;
  std::string dataset_, metric_;
  List history_, best_;
};

// As Python's repr() of a float.
std::string shortest_text(double value);

}  // namespace trireme::boosting
