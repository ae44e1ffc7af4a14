#include "plan/selection.h"

#include <algorithm>
#include <string_view>

namespace trireme::plan {
namespace {

// Not the batch's own columns, which may have been dictionaries when they were read.
base::Result<std::shared_ptr<const data::Schema>> schema_of(const data::Batch& batch) {
  return taken_schema(exported(batch));
}

base::Result<std::shared_ptr<const data::Chunk>> chunk_of(const data::Batch& batch,
                                                          std::shared_ptr<const data::Schema> schema) {
  Record record = exported(batch);
  ArrowArray array = record.array.give();
  return data::Chunk::take(array, std::move(schema));
}

}  // namespace

Record exported(const data::Batch& batch) {
  Record record;
  batch.export_to(*record.array, *record.schema);
  return record;
}

base::Result<std::shared_ptr<const data::Schema>> taken_schema(Record record) {
  ArrowSchema c_schema = record.schema.give();
  return data::Schema::take(c_schema);
}

base::Result<Record> Selection::apply(const data::Batch& batch, Where where) {
  TRIREME_ASSIGN(const auto keeps, choose(batch, where));
  std::vector<data::Run> runs;
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    if (!keeps[static_cast<std::size_t>(row)]) continue;
    if (!runs.empty() && runs.back().row + runs.back().count == row) ++runs.back().count;
    else runs.push_back({0, row, 1});
  }
  if (runs.empty()) return exported(data::Batch::empty(batch.schema()));
  TRIREME_ASSIGN(auto schema, schema_of(batch));
  TRIREME_ASSIGN(const auto chunk, chunk_of(batch, std::move(schema)));
  TRIREME_ASSIGN(const auto chosen, data::Batch::gather({&chunk, 1}, runs));
  return exported(chosen);
}

Record with_columns(const data::Batch& batch, Record columns) {
  auto whole = split(batch);
  for (auto& added : split(std::move(columns))) {
    const auto replaced = std::find_if(whole.begin(), whole.end(), [&](const auto& column) {
      return std::string_view(column.schema->name) == added.schema->name;
    });
    if (replaced == whole.end()) whole.push_back(std::move(added));
    else *replaced = std::move(added);
  }
  return record_of(std::move(whole), batch.rows());
}

base::Result<data::Batch> first_rows(const data::Batch& batch, std::int64_t rows) {
  if (batch.rows() <= rows) return batch;
  TRIREME_ASSIGN(auto schema, schema_of(batch));
  TRIREME_ASSIGN(const auto chunk, chunk_of(batch, std::move(schema)));
  const data::Run head{0, 0, rows};
  return data::Batch::gather({&chunk, 1}, {&head, 1});
}

base::Result<data::Batch> joined(const std::vector<data::Batch>& batches) {
  if (batches.size() == 1) return batches.front();
  TRIREME_ASSIGN(const auto schema, schema_of(batches.front()));
  std::vector<std::shared_ptr<const data::Chunk>> chunks;
  std::vector<data::Run> runs;
  for (const auto& batch : batches) {
    TRIREME_ASSIGN(auto chunk, chunk_of(batch, schema));
    runs.push_back({static_cast<std::uint32_t>(chunks.size()), 0, batch.rows()});
    chunks.push_back(std::move(chunk));
  }
  return data::Batch::gather(chunks, runs);
}

}  // namespace trireme::plan
