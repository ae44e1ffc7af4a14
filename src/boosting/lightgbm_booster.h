#pragma once

#include <string>
#include <vector>

#include "boosting/lightgbm_dataset.h"
#include "trireme/value.h"

namespace trireme::boosting {

// A model in training.
class LightgbmBooster {
 public:
  LightgbmBooster(const LightgbmLibrary& library, const LightgbmDataset& dataset, const Dict& params,
                  const RowColumns& columns);
  ~LightgbmBooster() { (void)library_.LGBM_BoosterFree(handle_); }
  LightgbmBooster(const LightgbmBooster&) = delete;
  LightgbmBooster& operator=(const LightgbmBooster&) = delete;

  void add_evaluation(const LightgbmDataset& dataset, const std::string& name);
  // Inserts the trees of an earlier model before those of this one.
  void put_first(const LightgbmModel& earlier);

  int rounds() const;
  void set_params(const Dict& params);
  // Adds a tree, or none if no split is possible.
  void update();
  // [dataset, metric, value, maximize] for each. `train`: also of this worker's rows to train on.
  List evaluate(bool train) const;
  void save(const std::string& path) const;

 private:
  std::vector<std::string> metric_names() const;

  const LightgbmLibrary& library_;
  void* handle_ = nullptr;
  std::vector<std::string> datasets_;
  std::string categories_;  // the line of the model file that LightGBM's Python package adds
};

}  // namespace trireme::boosting
