#pragma once

#include <string>
#include <vector>

#include "boosting/xgboost_library.h"
#include "boosting/xgboost_matrix.h"
#include "trireme/value.h"

namespace trireme::boosting {

// A model in training.
class XgboostBooster {
 public:
  // `matrices`: the one to train on, and those to evaluate.
  XgboostBooster(const XgboostLibrary& library, std::vector<Handle> matrices, const Config& config,
                 const RowColumns& columns);
  ~XgboostBooster() { (void)library_.XGBoosterFree(handle_); }
  XgboostBooster(const XgboostBooster&) = delete;
  XgboostBooster& operator=(const XgboostBooster&) = delete;

  void load(const std::string& path);
  void save(const std::string& path) const;
  // Continues as a resumed run would: XGBoost neither stores the state of its random numbers nor can restore it.
  void forget_random_numbers();

  int rounds() const;
  void update(int round);
  // `names`: of all matrices, or of all but the one to train on.
  Metrics evaluate(int round, const std::vector<std::string>& names);
  void set_attribute(const std::string& name, const std::string& value);

 private:
  void create();
  void configure();

  const XgboostLibrary& library_;
  std::vector<Handle> matrices_;
  Dict params_;
  const RowColumns& columns_;
  Handle handle_ = nullptr;
};

}  // namespace trireme::boosting
