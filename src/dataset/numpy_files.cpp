#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/interfaces.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "file_source.h"
#include "formats/npy.h"
#include "plan/value_columns.h"
#include "trireme/arrow/data.h"

// read_numpy(): .npy files.

namespace trireme::data {
namespace {

using ::arrow::fs::FileInfo;
using dataset::BatchPointer;
using dataset::FilePart;
using dataset::SchemaPointer;

constexpr std::int64_t kArrayRows = 65536;
constexpr std::int64_t kFirstRead = 256;  // large enough for nearly every header

std::vector<std::int64_t> row_shape(const formats::NpyHeader& header) {
  return {header.shape.begin() + 1, header.shape.end()};
}

std::int64_t row_bytes(const formats::NpyHeader& header) {
  auto bytes = static_cast<std::int64_t>(size_of(header.dtype));
  for (const auto size : row_shape(header)) bytes *= size;
  return bytes;
}

// For example "uint8[4, 3]".
std::string text_of(DType dtype, const std::vector<std::int64_t>& shape) {
  return fmt::format("{}[{}]", plan::number_type(dtype).text(), fmt::join(shape, ", "));
}

::arrow::Result<plan::Record> record_of(const Tensor& values) {
  return dataset::as_arrow(plan::record_of_columns({{"data", values}}));
}

// Of the rows, in the same representation as in Python.
::arrow::Result<SchemaPointer> schema_of(const formats::NpyHeader& header) {
  auto shape = header.shape;
  shape[0] = 0;
  ARROW_ASSIGN_OR_RAISE(auto none, record_of(Tensor(header.dtype, std::move(shape))));
  return ::arrow::ImportSchema(&*none.schema);
}

::arrow::Status broken(const FileInfo& file, const std::string& why) {
  return ::arrow::Status::Invalid(file.path(), " is not a readable .npy file: ", why);
}

class NumpySource final : public dataset::FileSource {
 public:
  using FileSource::FileSource;

 private:
  ::arrow::Result<formats::NpyHeader> header_of(const FileInfo& info) {
    ARROW_ASSIGN_OR_RAISE(auto file, filesystem()->OpenInputFile(info));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t size, file->GetSize());
    formats::NpyPrefix prefix{std::nullopt, kFirstRead};
    while (!prefix.header) {
      ARROW_ASSIGN_OR_RAISE(const auto beginning, file->ReadAt(0, prefix.needed));
      auto parsed = formats::parse_npy(std::string_view(*beginning));
      if (!parsed) return broken(info, parsed.error().message());
      if (!parsed->header && size < parsed->needed) return broken(info, "its header is truncated");
      prefix = *std::move(parsed);
    }
    const formats::NpyHeader& header = *prefix.header;
    if (header.shape.empty()) {
      return ::arrow::Status::Invalid(info.path(), " is a single value: expected a dimension for the rows");
    }
    if (size < header.begin || size - header.begin < header.value_bytes()) {
      return ::arrow::Status::Invalid(info.path(), " is truncated: it has ", size, " bytes, too few for ",
                                      text_of(header.dtype, header.shape));
    }
    return header;
  }

  ::arrow::Result<SchemaPointer> infer(const FileInfo& file) override {
    ARROW_ASSIGN_OR_RAISE(const auto header, header_of(file));
    return schema_of(header);
  }

  ::arrow::Result<std::vector<FilePart>> plan(const std::vector<FileInfo>& files) override {
    std::vector<formats::NpyHeader> headers(files.size());
    ARROW_RETURN_NOT_OK(
        dataset::in_threads(files.size(), [&](std::size_t i) { return header_of(files[i]).Value(&headers[i]); }));
    std::vector<FilePart> parts;
    for (std::size_t i = 0; i < files.size(); ++i) ARROW_RETURN_NOT_OK(add_parts(files[i], headers[i], parts));
    return parts;
  }

  ::arrow::Status add_parts(const FileInfo& file, const formats::NpyHeader& header, std::vector<FilePart>& parts) {
    ARROW_ASSIGN_OR_RAISE(const auto schema, schema_of(header));
    if (!schema->Equals(*body())) {
      return ::arrow::Status::Invalid("a row of ", file.path(), " is ", text_of(header.dtype, row_shape(header)),
                                      ", but a row of ", this->files().front().path(), " is ",
                                      body()->field(0)->type()->ToString(), ": read them separately");
    }
    const std::int64_t rows = header.shape[0];
    const std::int64_t size = row_bytes(header);
    std::int64_t step = rows;
    if (!header.fortran_order) {
      step = std::max<std::int64_t>(1, dataset::kFragmentBytes / std::max<std::int64_t>(size, 1));
    }
    for (std::int64_t start = 0; start < rows; start += step) {
      const std::int64_t count = std::min(step, rows - start);
      std::string what;
      if (count < rows) what = "rows " + std::to_string(start) + " to " + std::to_string(start + count - 1);
      parts.push_back({{file}, std::move(what), count, count * size, start});
    }
    std::lock_guard lock(mutex_);
    headers_[file.path()] = header;
    return ::arrow::Status::OK();
  }

  ::arrow::Result<std::shared_ptr<::arrow::RecordBatchReader>> read(const FilePart& part, std::int64_t row) override {
    const FileInfo& info = part.files.front();
    formats::NpyHeader header;
    {
      std::lock_guard lock(mutex_);
      header = headers_.at(info.path());
    }
    ARROW_ASSIGN_OR_RAISE(auto file, filesystem()->OpenInputFile(info));
    const std::int64_t size = row_bytes(header);
    const std::int64_t step = std::clamp(dataset::kBatchBytes / std::max<std::int64_t>(size, 1), std::int64_t{1},
                                         header.fortran_order ? header.shape[0] : kArrayRows);
    auto make = [=, at = part.start + row, end = part.start + *part.rows,
                 schema = body()]() mutable -> ::arrow::Result<BatchPointer> {
      if (at >= end) return nullptr;
      const std::int64_t count = header.fortran_order ? end - at : std::min(step, end - at);
      ARROW_ASSIGN_OR_RAISE(const auto values, values_of(*file, header, at, count));
      if (!values) {
        return ::arrow::Status::Invalid(info.path(), " is truncated: row ", at + count - 1, " of ", header.shape[0],
                                        " is missing");
      }
      at += count;
      ARROW_ASSIGN_OR_RAISE(auto record, record_of(*values));
      return ::arrow::ImportRecordBatch(&*record.array, schema);
    };
    return std::make_shared<dataset::MadeBatches>(body(), std::move(make));
  }

  // Nothing if the file is too short.
  static ::arrow::Result<std::optional<Tensor>> values_of(::arrow::io::RandomAccessFile& file,
                                                          formats::NpyHeader header, std::int64_t row,
                                                          std::int64_t count) {
    const std::int64_t size = row_bytes(header);
    // Fortran order: a row is spread over the file.
    const bool whole = header.fortran_order;
    if (!whole) header.shape[0] = count;
    const std::int64_t bytes = header.value_bytes();
    ARROW_ASSIGN_OR_RAISE(const auto content, file.ReadAt(header.begin + (whole ? 0 : row * size), bytes));
    if (content->size() < bytes) return std::nullopt;
    const Tensor values = formats::npy_tensor(header, std::string_view(*content), content);
    if (!whole) return values;
    header.shape[0] = count;
    return Tensor::view(header.dtype, header.shape, static_cast<char*>(values.data()) + row * size,
                        std::make_shared<Tensor>(values));
  }

  std::mutex mutex_;
  std::map<std::string, formats::NpyHeader> headers_;  // by path
};

}  // namespace

Dataset read_numpy(const Paths& paths, const ReadNumpyOptions& options) {
  return from_source(std::make_shared<NumpySource>(
      "read_numpy", paths.paths, dataset::FileSourceOptions{{".npy"}, options.include_paths, options.skip_bad_files}));
}

}  // namespace trireme::data
