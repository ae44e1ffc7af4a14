#pragma once

#include <arrow/filesystem/filesystem.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "found_files.h"
#include "trireme/data_source.h"

namespace trireme::dataset {

// Bytes that are read or produced at a time; a fragment has several of these blocks.
constexpr std::int64_t kBatchBytes = std::int64_t{16} << 20;
constexpr std::int64_t kFragmentBytes = 4 * kBatchBytes;

using SchemaPointer = std::shared_ptr<::arrow::Schema>;
using BatchPointer = std::shared_ptr<::arrow::RecordBatch>;

// Converts an error of the core to an Arrow status.
template <typename T>
::arrow::Result<T> as_arrow(base::Result<T> result) {
  if (!result) return ::arrow::Status::Invalid(result.error().message());
  return *std::move(result);
}

// Batches produced by a function; nullptr marks the end.
class MadeBatches final : public ::arrow::RecordBatchReader {
 public:
  using Make = std::function<::arrow::Result<BatchPointer>()>;
  MadeBatches(SchemaPointer schema, Make make) : schema_(std::move(schema)), make_(std::move(make)) {}

  SchemaPointer schema() const override { return schema_; }
  ::arrow::Status ReadNext(BatchPointer* out) override;

 private:
  SchemaPointer schema_;  // shared with the batches
  Make make_;
};

// A part of a dataset: rows of one file, or several files with one row each.
struct FilePart {
  std::vector<::arrow::fs::FileInfo> files;
  std::string what = {};  // "rows 0 to 9", appended to the name of the file
  std::optional<std::int64_t> rows = {};
  std::int64_t bytes = 0;
  std::int64_t start = 0;  // first row, in the file
};

struct FileSourceOptions {
  std::vector<std::string> endings = {};
  bool include_paths = false;
  bool skip_bad_files = false;
};

// Base class for readers of files that Arrow does not read: finds files, skips bad ones and adds the column "path". The
// first file, or the first good one, defines the columns.
class FileSource : public DataSource {
 public:
  FileSource(std::string call, std::vector<std::string> paths, FileSourceOptions options)
      : call_(std::move(call)), paths_(std::move(paths)), options_(std::move(options)) {}

  std::string name() const override { return call_ + "(" + short_list(paths_) + ")"; }
  bool remote() const override { return found_.remote; }
  std::vector<DataFragment> list() override;
  std::int64_t open(std::size_t fragment, std::int64_t row, ArrowArrayStream* stream) override;

 protected:
  const std::shared_ptr<::arrow::fs::FileSystem>& filesystem() const { return found_.filesystem; }
  const std::vector<::arrow::fs::FileInfo>& files() const { return found_.files; }
  bool skips_bad_files() const { return options_.skip_bad_files; }
  // The columns in the files, without the path.
  const SchemaPointer& body() const { return body_; }

 private:
  // The columns of a file, read from as little of it as possible.
  virtual ::arrow::Result<SchemaPointer> infer(const ::arrow::fs::FileInfo& file) = 0;
  // Fails if the columns of a file differ from body().
  virtual ::arrow::Result<std::vector<FilePart>> plan(const std::vector<::arrow::fs::FileInfo>& files) = 0;
  // Reads from `row` of the part on, with the columns of body(). Called on any thread.
  virtual ::arrow::Result<std::shared_ptr<::arrow::RecordBatchReader>> read(const FilePart& part, std::int64_t row) = 0;

  ::arrow::Result<SchemaPointer> infer_first();
  std::vector<::arrow::fs::FileInfo> good_files();
  ::arrow::Status try_file(const ::arrow::fs::FileInfo& file);
  std::shared_ptr<::arrow::RecordBatchReader> with_paths(std::shared_ptr<::arrow::RecordBatchReader> reader,
                                                         const FilePart& part, std::int64_t row) const;

  std::string call_;
  std::vector<std::string> paths_;
  FileSourceOptions options_;
  FoundFiles found_;
  SchemaPointer body_;  // shared with readers
  std::vector<FilePart> parts_;
};

// Groups files with one row each: several in a part, but not all in one.
std::vector<FilePart> together(const std::vector<::arrow::fs::FileInfo>& files,
                               const std::function<std::int64_t(const ::arrow::fs::FileInfo&)>& bytes_of);

// Calls it for 0 ... count - 1, on several threads. Returns the failure with the lowest number.
::arrow::Status in_threads(std::size_t count, const std::function<::arrow::Status(std::size_t)>& work);

}  // namespace trireme::dataset
