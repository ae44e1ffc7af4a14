#include "table_source.h"

#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>

#include <algorithm>

#include "kernels.h"
#include "status.h"

namespace trireme::dataset {
namespace {

constexpr std::int64_t kSliceRows = 65536;

}  // namespace

std::vector<DataFragment> TableSource::list() {
  load_kernels();
  table_ = compute();
  const std::int64_t rows = table_->num_rows();
  const std::int64_t bytes = row_bytes(*table_);
  const auto count = slices(*table_, bytes);
  starts_ = {0};
  while (std::ssize(starts_) == 1 || starts_.back() < rows) {
    const std::int64_t next = count ? rows * std::ssize(starts_) / *count : starts_.back() + kSliceRows;
    starts_.push_back(std::min(next, rows));
  }
  std::vector<DataFragment> listed;
  for (std::size_t i = 0; i + 1 < starts_.size(); ++i) {
    const std::int64_t here = starts_[i + 1] - starts_[i];
    listed.push_back({name_ + " from row " + std::to_string(starts_[i]), here, here * bytes});
  }
  return listed;
}

std::int64_t TableSource::open(std::size_t fragment, std::int64_t row, ArrowArrayStream* stream) {
  const auto slice = table_->Slice(starts_[fragment] + row, starts_[fragment + 1] - starts_[fragment] - row);
  auto batches = check(::arrow::TableBatchReader(slice).ToRecordBatches());
  check(::arrow::ExportRecordBatchReader(check(::arrow::RecordBatchReader::Make(std::move(batches), table_->schema())),
                                         stream));
  return row;
}

}  // namespace trireme::dataset
