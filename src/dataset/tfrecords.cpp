#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/interfaces.h>

#include "file_source.h"
#include "file_streams.h"
#include "formats/tfrecord.h"
#include "trireme/arrow/data.h"
#include "trireme/value.h"

// read_tfrecords(): the core parses the records.

namespace trireme::data {
namespace {

using ::arrow::fs::FileInfo;
using dataset::BatchPointer;
using dataset::FilePart;
using dataset::SchemaPointer;
using formats::FeatureColumn;

constexpr std::int64_t kReadBytes = std::int64_t{1} << 20;
// Estimated compression ratio.
constexpr std::int64_t kRecordRatio = 4;

std::string_view view(const std::shared_ptr<::arrow::Buffer>& buffer) { return std::string_view(*buffer); }

class TfRecordSource final : public dataset::FileSource {
 public:
  TfRecordSource(std::vector<std::string> paths, dataset::FileSourceOptions options, std::vector<FeatureColumn> given)
      : FileSource("read_tfrecords", std::move(paths), std::move(options)), given_(std::move(given)) {}

 private:
  ::arrow::Result<SchemaPointer> infer(const FileInfo& file) override {
    columns_ = given_;
    if (columns_.empty()) {
      formats::TfRecordTypes types(file.path());
      ARROW_ASSIGN_OR_RAISE(auto stream, dataset::open_stream(*filesystem(), file));
      for (bool more = true; more;) {
        ARROW_ASSIGN_OR_RAISE(const auto block, stream->Read(kReadBytes));
        if (block->size() == 0) break;
        ARROW_ASSIGN_OR_RAISE(more, dataset::as_arrow(types.add(view(block))));
      }
      ARROW_ASSIGN_OR_RAISE(columns_, dataset::as_arrow(types.columns()));
    }
    return ::arrow::ImportSchema(&*formats::ExampleColumns(columns_, {}).schema());
  }

  ::arrow::Result<std::vector<FilePart>> plan(const std::vector<FileInfo>& files) override {
    std::vector<FilePart> parts;
    for (const auto& file : files) {
      const bool packed = file.path().ends_with(".gz") || file.path().ends_with(".zst");
      parts.push_back({{file}, "", std::nullopt, file.size() * (packed ? kRecordRatio : 1)});
    }
    return parts;
  }

  ::arrow::Result<std::shared_ptr<::arrow::RecordBatchReader>> read(const FilePart& part, std::int64_t row) override {
    std::vector<std::string> names;
    for (const auto& column : columns_) names.push_back(column.name);
    const FileInfo& file = part.files.front();
    const auto reader = std::make_shared<formats::TfRecordReader>(file.path(), columns_, names, row);
    ARROW_ASSIGN_OR_RAISE(auto stream, dataset::open_stream(*filesystem(), file));
    auto make = [reader, stream, schema = body()]() -> ::arrow::Result<BatchPointer> {
      for (bool ended = false;;) {
        ARROW_ASSIGN_OR_RAISE(auto array, dataset::as_arrow(reader->next()));
        if (array) return ::arrow::ImportRecordBatch(&**array, schema);
        if (ended) return nullptr;
        ARROW_ASSIGN_OR_RAISE(const auto block, stream->Read(kReadBytes));
        ended = block->size() == 0;
        if (ended) reader->end();
        reader->add(view(block));
      }
    };
    return std::make_shared<dataset::MadeBatches>(body(), std::move(make));
  }

  std::vector<FeatureColumn> given_;
  std::vector<FeatureColumn> columns_;
};

}  // namespace

Dataset read_tfrecords(const Paths& paths, const ReadTfrecordsOptions& options) {
  std::vector<FeatureColumn> columns;
  for (const auto& [name, type] : options.schema) {
    auto column = FeatureColumn::of(name, type);
    if (!column) throw ValueError("read_tfrecords: schema: " + column.error().message());
    columns.push_back(*std::move(column));
  }
  return from_source(std::make_shared<TfRecordSource>(
      paths.paths, dataset::FileSourceOptions{{}, options.include_paths, options.skip_bad_files}, std::move(columns)));
}

}  // namespace trireme::data
