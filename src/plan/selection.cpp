#include "plan/selection.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace trireme::plan {
namespace {

// The rows of the runs; a run's chunk is the index of its batch.
base::Result<data::Batch> gathered(std::span<const data::Batch> batches, const std::vector<data::Run>& runs) {
  // Not the batches' own columns, which may have been dictionaries when they were read.
  TRIREME_ASSIGN(const auto schema, data::Schema::take(batches.front().exported().schema));
  std::vector<std::shared_ptr<const data::Chunk>> chunks;
  for (const auto& batch : batches) {
    TRIREME_ASSIGN(auto chunk, data::Chunk::take(batch.exported().array, schema));
    chunks.push_back(std::move(chunk));
  }
  return data::Batch::gather(chunks, runs);
}

}  // namespace

base::Result<Record> Selection::apply(const data::Batch& batch, Where where) {
  TRIREME_ASSIGN(const auto keeps, choose(batch, where));
  std::vector<data::Run> runs;
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    if (!keeps[static_cast<std::size_t>(row)]) continue;
    if (!runs.empty() && runs.back().row + runs.back().count == row) ++runs.back().count;
    else runs.push_back({0, row, 1});
  }
  if (runs.empty()) return data::Batch::empty(batch.schema()).exported();
  TRIREME_ASSIGN(const auto chosen, gathered({&batch, 1}, runs));
  return chosen.exported();
}

Record with_columns(const data::Batch& batch, Record columns) {
  auto whole = split(batch.exported());
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
  return gathered({&batch, 1}, {data::Run{0, 0, rows}});
}

base::Result<data::Batch> joined(const std::vector<data::Batch>& batches) {
  if (batches.size() == 1) return batches.front();
  std::vector<data::Run> runs;
  for (const auto& batch : batches) runs.push_back({static_cast<std::uint32_t>(runs.size()), 0, batch.rows()});
  return gathered(batches, runs);
}

}  // namespace trireme::plan
