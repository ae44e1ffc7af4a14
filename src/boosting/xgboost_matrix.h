#pragma once

#include <string>

#include "boosting/worker_rows.h"
#include "boosting/xgboost_library.h"

namespace trireme::boosting {

// A matrix of this worker's rows of a dataset. XGBoost passes over the rows four times and keeps only the quantized
// ones; with tree_method="approx" it reads them once and keeps the rows themselves, in files.
class XgboostMatrix {
 public:
  // `reference`: the matrix whose quantiles to use; nullptr: its own. `cache`: the folder and prefix of the files;
  // empty: the quantized rows are in memory.
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

// Whether the rows are in files.
bool keeps_files(const Config& config);

// "float", or "c" for a categorical feature, by feature.
std::vector<const char*> feature_types(const RowColumns& columns);

}  // namespace trireme::boosting
