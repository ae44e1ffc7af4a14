#pragma once

#include <string>
#include <vector>

#include "boosting/xgboost_library.h"
#include "trireme/data.h"

namespace trireme::boosting {

// What a worker reads of a dataset.
struct MatrixColumns {
  std::vector<std::string> features;
  std::string label;
  std::string weight;  // empty: none
};

// A QuantileDMatrix of this worker's rows of a dataset. XGBoost passes over the rows four times and keeps only the
// quantized ones.
class XgboostMatrix {
 public:
  // `reference`: the matrix whose quantiles to use; nullptr: its own.
  XgboostMatrix(const XgboostLibrary& library, const std::string& dataset, const MatrixColumns& columns,
                const Dict& params, Handle reference);
  ~XgboostMatrix();
  XgboostMatrix(const XgboostMatrix&) = delete;
  XgboostMatrix& operator=(const XgboostMatrix&) = delete;

  Handle handle() const { return handle_; }

 private:
  const XgboostLibrary& library_;
  Handle handle_ = nullptr;
};

}  // namespace trireme::boosting
