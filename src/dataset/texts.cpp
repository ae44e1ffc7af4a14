#include <arrow/array/builder_binary.h>
#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <optional>
#include <utility>

#include "file_streams.h"
#include "found_files.h"
#include "status.h"
#include "trireme/arrow/data.h"
#include "trireme/data_source.h"

// Files that are not tables: read_text() and read_binary_files().

namespace trireme::data {
namespace {

using dataset::check;
using dataset::FoundFiles;

constexpr std::int64_t kBlock = std::int64_t{1} << 20;

// The lines of a file, about one block at a time.
class LineReader final : public ::arrow::RecordBatchReader {
 public:
  explicit LineReader(std::shared_ptr<::arrow::io::InputStream> stream) : stream_(std::move(stream)) {}

  std::shared_ptr<::arrow::Schema> schema() const override { return schema_; }

  ::arrow::Status ReadNext(std::shared_ptr<::arrow::RecordBatch>* out) override {
    ::arrow::LargeStringBuilder lines;
    while (lines.length() == 0 && !ended_) {
      ARROW_ASSIGN_OR_RAISE(auto block, stream_->Read(kBlock));
      ended_ = block->size() == 0;
      ARROW_RETURN_NOT_OK(
          split({reinterpret_cast<const char*>(block->data()), static_cast<std::size_t>(block->size())}, lines));
      if (ended_) ARROW_RETURN_NOT_OK(append(std::exchange(begun_, {}), lines));
    }
    out->reset();
    if (lines.length() == 0) return ::arrow::Status::OK();
    ARROW_ASSIGN_OR_RAISE(auto column, lines.Finish());
    *out = ::arrow::RecordBatch::Make(schema_, column->length(), {column});
    return ::arrow::Status::OK();
  }

 private:
  ::arrow::Status split(std::string_view block, ::arrow::LargeStringBuilder& lines) {
    while (true) {
      const std::size_t end = block.find('\n');
      begun_ += block.substr(0, end);
      if (end == std::string_view::npos) return ::arrow::Status::OK();
      ARROW_RETURN_NOT_OK(append(begun_, lines));
      begun_.clear();
      block.remove_prefix(end + 1);
    }
  }

  static ::arrow::Status append(std::string_view line, ::arrow::LargeStringBuilder& lines) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line.empty() ? ::arrow::Status::OK() : lines.Append(line);
  }

  std::shared_ptr<::arrow::io::InputStream> stream_;  // shared for its deleter
  std::string begun_;                                 // start of a line whose end is not read yet
  bool ended_ = false;
  std::shared_ptr<::arrow::Schema> schema_ = ::arrow::schema({::arrow::field("text", ::arrow::large_utf8())});
};

class WholeFiles : public DataSource {
 public:
  explicit WholeFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  std::string name() const override { return call() + "(" + dataset::short_list(paths_) + ")"; }
  bool remote() const override { return found_.remote; }

  std::vector<DataFragment> list() override {
    found_ = dataset::find_files(paths_);
    std::vector<DataFragment> listed;
    for (const auto& file : found_.files) listed.push_back({file.path(), rows_of_file(), file.size()});
    return listed;
  }

  std::int64_t open(std::size_t fragment, std::int64_t, ArrowArrayStream* stream) override {
    check(::arrow::ExportRecordBatchReader(read(found_, found_.files[fragment]), stream));
    return 0;
  }

 private:
  virtual std::string call() const = 0;
  virtual std::optional<std::int64_t> rows_of_file() const = 0;
  virtual std::shared_ptr<::arrow::RecordBatchReader> read(FoundFiles& found, const ::arrow::fs::FileInfo& file) = 0;

  std::vector<std::string> paths_;
  FoundFiles found_;
};

class TextSource final : public WholeFiles {
 public:
  using WholeFiles::WholeFiles;

 private:
  std::string call() const override { return "read_text"; }
  std::optional<std::int64_t> rows_of_file() const override { return std::nullopt; }
  std::shared_ptr<::arrow::RecordBatchReader> read(FoundFiles& found, const ::arrow::fs::FileInfo& file) override {
    return std::make_shared<LineReader>(check(dataset::open_stream(*found.filesystem, file)));
  }
};

class BinarySource final : public WholeFiles {
 public:
  using WholeFiles::WholeFiles;

 private:
  std::string call() const override { return "read_binary_files"; }
  std::optional<std::int64_t> rows_of_file() const override { return 1; }

  std::shared_ptr<::arrow::RecordBatchReader> read(FoundFiles& found, const ::arrow::fs::FileInfo& info) override {
    const auto content = check(dataset::read_whole(*found.filesystem, info));
    ::arrow::LargeBinaryBuilder bytes;
    check(bytes.Append(content->data(), content->size()));
    ::arrow::LargeStringBuilder path;
    check(path.Append(info.path()));
    const auto schema = ::arrow::schema(
        {::arrow::field("bytes", ::arrow::large_binary()), ::arrow::field("path", ::arrow::large_utf8())});
    const auto batch = ::arrow::RecordBatch::Make(schema, 1, {check(bytes.Finish()), check(path.Finish())});
    return check(::arrow::RecordBatchReader::Make({batch}, schema));
  }
};

}  // namespace

Dataset read_text(const Paths& paths) { return from_source(std::make_shared<TextSource>(paths.paths)); }

Dataset read_binary_files(const Paths& paths) { return from_source(std::make_shared<BinarySource>(paths.paths)); }

}  // namespace trireme::data
