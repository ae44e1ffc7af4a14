#include "parquet_pages.h"

#include <parquet/arrow/reader.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>
#include <utility>

#include "status.h"

namespace trireme::dataset {
namespace {

// Memory per leaf column of at least that size: a dictionary, a stored page and a decoded page, about 1 MB each, and
// the stream's read-ahead.
constexpr std::int64_t kLeafBytes = 5 << 19;
constexpr std::int64_t kStreamBytes = 256 << 10;

// Keeps the file's reader alive, which the readers of its row groups need.
class PageReader final : public ::arrow::RecordBatchReader {
 public:
  PageReader(std::unique_ptr<::parquet::arrow::FileReader> file, std::unique_ptr<::arrow::RecordBatchReader> batches)
      : file_(std::move(file)), batches_(std::move(batches)) {}

  std::shared_ptr<::arrow::Schema> schema() const override { return batches_->schema(); }
  ::arrow::Status ReadNext(std::shared_ptr<::arrow::RecordBatch>* batch) override { return batches_->ReadNext(batch); }

 private:
  std::unique_ptr<::parquet::arrow::FileReader> file_;
  std::unique_ptr<::arrow::RecordBatchReader> batches_;
};

}  // namespace

std::optional<std::vector<int>> leaves_of(const ::parquet::FileMetaData& file,
                                          const std::vector<std::string>& columns) {
  std::vector<int> leaves;
  for (const auto& column : columns) {
    const auto before = leaves.size();
    for (int leaf = 0; leaf < file.schema()->num_columns(); ++leaf) {
      if (file.schema()->GetColumnRoot(leaf)->name() == column) leaves.push_back(leaf);
    }
    if (leaves.size() == before) return {};
  }
  return leaves;
}

std::int64_t page_bytes(const ::parquet::RowGroupMetaData& group, const std::vector<int>& leaves) {
  std::int64_t sum = 0;
  for (const int leaf : leaves) sum += std::min(group.ColumnChunk(leaf)->total_uncompressed_size(), kLeafBytes);
  return sum;
}

std::shared_ptr<::arrow::RecordBatchReader> read_pages(const ::arrow::dataset::FileSource& file,
                                                       std::shared_ptr<::parquet::FileMetaData> metadata, int group,
                                                       const std::vector<int>& leaves, const PageOptions& options) {
  ::parquet::ReaderProperties stream;
  ::parquet::ArrowReaderProperties rows(/*use_threads=*/false);
  rows.set_batch_size(options.batch_rows);
  rows.set_pre_buffer(options.remote);
  if (!options.remote) {
    stream.enable_buffered_stream();
    stream.set_buffer_size(kStreamBytes);
  }
  ::parquet::arrow::FileReaderBuilder builder;
  check(builder.Open(check(file.Open()), stream, std::move(metadata)));
  auto reader = check(builder.properties(rows)->Build());
  auto batches = check(reader->GetRecordBatchReader({group}, leaves));
  return std::make_shared<PageReader>(std::move(reader), std::move(batches));
}

}  // namespace trireme::dataset
