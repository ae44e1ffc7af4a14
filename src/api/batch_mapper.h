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
      : function_(std::move(function)), options_(options) {}

  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<BatchMapper>(*this); }
  std::string_view name() const override { return "BatchMapper"; }
  Dict arguments() const override { return {}; }
  std::string_view function_argument() const override { return "fn"; }
  bool fittable() const override { return false; }

  base::Result<preprocess::Changes> change(const preprocess::Table& table) const override;
  Dataset transform(const Dataset& dataset) const { return dataset.map_batches(function_, options_); }

 private:
  base::Result<void> understand(const Dict&) override { return {}; }
  base::Result<Dict> called(const Batch& batch) const;

  std::function<Dict(const Batch&)> function_;
  MapBatchesOptions options_;
};

}  // namespace trireme::api
