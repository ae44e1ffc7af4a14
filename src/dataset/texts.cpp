#include <arrow/array/builder_binary.h>
#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <optional>
#include <utility>

#include "file_source.h"
#include "file_streams.h"
#include "status.h"
#include "trireme/arrow/data.h"
#include "trireme/data_source.h"

// Files that are not tables: read_text() and read_binary_files().

namespace trireme::data {
namespace {

using ::arrow::fs::FileInfo;
using dataset::check;
using dataset::FilePart;

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

class TextSource final : public DataSource {
 public:
  explicit TextSource(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  std::string name() const override { return "read_text(" + dataset::short_list(paths_) + ")"; }
  bool remote() const override { return found_.remote; }

  std::vector<DataFragment> list() override {
    found_ = dataset::find_files(paths_);
    std::vector<DataFragment> listed;
    for (const auto& file : found_.files) listed.push_back({file.path(), std::nullopt, file.size()});
    return listed;
  }

  std::int64_t open(std::size_t fragment, std::int64_t, ArrowArrayStream* stream) override {
    auto file = check(dataset::open_stream(*found_.filesystem, found_.files[fragment]));
    check(::arrow::ExportRecordBatchReader(std::make_shared<LineReader>(std::move(file)), stream));
    return 0;
  }

 private:
  std::vector<std::string> paths_;
  dataset::FoundFiles found_;
};

class BinarySource final : public dataset::FileSource {
 public:
  using FileSource::FileSource;

 private:
  ::arrow::Result<dataset::SchemaPointer> infer(const FileInfo&) override {
    return ::arrow::schema({::arrow::field("bytes", ::arrow::large_binary())});
  }

  ::arrow::Result<std::vector<FilePart>> plan(const std::vector<FileInfo>& files) override {
    return dataset::together(files, [](const FileInfo& file) { return file.size(); });
  }

  ::arrow::Result<std::shared_ptr<::arrow::RecordBatchReader>> read(const FilePart& part, std::int64_t row) override {
    auto make = [filesystem = filesystem(), schema = body(), files = part.files,
                 at = static_cast<std::size_t>(row)]() mutable -> ::arrow::Result<dataset::BatchPointer> {
      if (at == files.size()) return nullptr;
      ARROW_ASSIGN_OR_RAISE(const auto content, dataset::read_whole(*filesystem, files[at++]));
      ::arrow::LargeBinaryBuilder bytes;
      ARROW_RETURN_NOT_OK(bytes.Append(content->data(), content->size()));
      ARROW_ASSIGN_OR_RAISE(auto column, bytes.Finish());
      return ::arrow::RecordBatch::Make(schema, 1, {std::move(column)});
    };
    return std::make_shared<dataset::MadeBatches>(body(), std::move(make));
  }
};

}  // namespace

Dataset read_text(const Paths& paths) { return from_source(std::make_shared<TextSource>(paths.paths)); }

Dataset read_binary_files(const Paths& paths) {
  return from_source(
      std::make_shared<BinarySource>("read_binary_files", paths.paths, dataset::FileSourceOptions{{}, true}));
}

}  // namespace trireme::data
