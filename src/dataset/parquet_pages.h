#pragma once

#include <arrow/dataset/file_base.h>
#include <arrow/record_batch.h>
#include <parquet/metadata.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// Reads row groups of Parquet files page by page: a large one takes as much memory as a small one.

namespace trireme::dataset {

// The leaves of these columns, in order; nothing if a column is not in the file but in the name of a folder.
std::optional<std::vector<int>> leaves_of(const ::parquet::FileMetaData& file, const std::vector<std::string>& columns);

// Memory for reading them page by page, in addition to the rows.
std::int64_t page_bytes(const ::parquet::RowGroupMetaData& group, const std::vector<int>& leaves);

struct PageOptions {
  std::int64_t batch_rows = 0;
  bool remote = false;  // the complete row group is requested from a store at once
};
std::shared_ptr<::arrow::RecordBatchReader> read_pages(const ::arrow::dataset::FileSource& file,
                                                       std::shared_ptr<::parquet::FileMetaData> metadata, int group,
                                                       const std::vector<int>& leaves, const PageOptions& options);

}  // namespace trireme::dataset
