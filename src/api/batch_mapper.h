#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "preprocess/preprocessor_impl.h"
#include "trireme/data.h"

namespace trireme::api {

// The program's function as a part of a chain.
class BatchMapper final : public preprocess::PreprocessorImpl {
 public:
  BatchMapper(std::function<Dict(const Batch&)> function, const MapBatchesOptions& options)
      : function_(std::move(function)), options_(options) {
    set_origin({.name = "BatchMapper", .function_argument = "fn"});
  }

  bool fittable() const override { return false; }

  base::Result<preprocess::Changes> change(const preprocess::Table& table) const override;
  Dataset transform(const Dataset& dataset) const { return dataset.map_batches(function_, options_); }

 private:
  base::Result<Dict> called(const Batch& batch) const;

  std::function<Dict(const Batch&)> function_;
  MapBatchesOptions options_;
};

}  // namespace trireme::api
