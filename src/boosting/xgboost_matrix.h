#pragma once

#include <string>

#include "boosting/worker_rows.h"
#include "boosting/xgboost_library.h"

namespace trireme::boosting {

// A QuantileDMatrix of this worker's rows of a dataset. XGBoost passes over the rows four times and keeps only the
// quantized ones.
class XgboostMatrix {
 public:
  // `reference`: the matrix whose quantiles to use; nullptr: its own. `cache`: of external memory: the folder and
  // prefix of the files with the quantized rows; empty: they are in memory.
  XgboostMatrix(const XgboostLibrary& library, const std::string& dataset, const RowColumns& columns,
                const Dict& params, Handle reference, const std::string& cache);
  ~XgboostMatrix();
  XgboostMatrix(const XgboostMatrix&) = delete;
  XgboostMatrix& operator=(const XgboostMatrix&) = delete;

  Handle handle() const { return handle_; }

 private:
  const XgboostLibrary& library_;
  Handle handle_ = nullptr;
};

// "float", or "c" for a categorical feature, by feature.
std::vector<const char*> feature_types(const RowColumns& columns);

}  // namespace trireme::boosting
