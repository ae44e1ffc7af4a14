#include "api/preprocessors/preprocessor_impl.h"
#include "base/text.h"
#include "plan/rows.h"
#include "plan/value_columns.h"

namespace trireme::api::preprocessing {
namespace {

// The program's function as a part of a chain.
class BatchMapper final : public PreprocessorImpl {
 public:
  BatchMapper(std::function<Dict(const Batch&)> function, const MapBatchesOptions& options)
      : function_(std::move(function)), options_(options) {}
  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<BatchMapper>(*this); }
  std::string_view name() const override { return "BatchMapper"; }
  Dict arguments() const override { return {}; }
  std::string_view function_argument() const override { return "fn"; }
  bool fittable() const override { return false; }

  base::Result<Changes> change(const Table& table) const override {
    TRIREME_ASSIGN(const auto batch, batch_of(table.lent()));
    TRIREME_ASSIGN(const auto columns, called(public_batch(batch)));
    TRIREME_ASSIGN(auto record, record_of_columns(columns), "BatchMapper: the result of its function");
    if (!options_.changes_row_count && record.array->length != table.rows()) {
      return base::error("BatchMapper: the function returned {} for {}: set changes_row_count in its options",
                         base::count_of(record.array->length, "row"), table.rows());
    }
    Changes changes;
    for (const auto& column : table.columns()) changes.dropped.push_back(column.name);
    changes.columns = Table(std::move(record)).taken();
    return changes;
  }

  Dataset transform(const Dataset& dataset, std::shared_ptr<const PreprocessorImpl>) const override {
    return dataset.map_batches(function_, options_);
  }

 private:
  base::Result<void> understand(const Dict&) override { return {}; }

  // Exception boundary: anything the user's function throws is an error of the batch.
  base::Result<Dict> called(const Batch& batch) const {
    try {
      return function_(batch);
    } catch (const std::exception& thrown) {
      return base::error("BatchMapper: {}", thrown.what());
    }
  }

  std::function<Dict(const Batch&)> function_;
  MapBatchesOptions options_;
};

}  // namespace

std::unique_ptr<PreprocessorImpl> make_batch_mapper(std::function<Dict(const Batch&)> function,
                                                    const MapBatchesOptions& options) {
  return std::make_unique<BatchMapper>(std::move(function), options);
}

}  // namespace trireme::api::preprocessing
