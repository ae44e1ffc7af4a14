#include "api/batch_mapper.h"

#include "base/text.h"
#include "plan/rows.h"
#include "plan/value_columns.h"
#include "trireme/preprocessors.h"

namespace trireme::api {

base::Result<preprocess::Changes> BatchMapper::change(const preprocess::Table& table) const {
  TRIREME_ASSIGN(const auto batch, data::batch_of(table.lent()));
  TRIREME_ASSIGN(const auto columns, called(plan::public_batch(batch)));
  TRIREME_ASSIGN(auto record, plan::record_of_columns(columns), "BatchMapper: the result of its function");
  if (!options_.changes_row_count && record.array->length != table.rows()) {
    return base::error("BatchMapper: the function returned {} for {}: set changes_row_count in its options",
                       base::count_of(record.array->length, "row"), table.rows());
  }
  preprocess::Changes changes;
  for (const auto& column : table.columns()) changes.dropped.push_back(column.name);
  changes.columns = preprocess::Table(std::move(record)).taken();
  return changes;
}

// Exception boundary: anything the user's function throws is an error of the batch.
base::Result<Dict> BatchMapper::called(const Batch& batch) const {
  try {
    return function_(batch);
  } catch (const std::exception& thrown) {
    return base::error("BatchMapper: {}", thrown.what());
  }
}

}  // namespace trireme::api

namespace trireme::data::preprocessors {

BatchMapper::BatchMapper(std::function<Dict(const trireme::Batch&)> fn, const MapBatchesOptions& options)
    : Preprocessor(std::make_shared<preprocess::Data>(
          preprocess::Data{std::make_shared<api::BatchMapper>(std::move(fn), options)})) {}

}  // namespace trireme::data::preprocessors
