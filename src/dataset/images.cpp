#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/interfaces.h>

#include <algorithm>

#include "file_source.h"
#include "file_streams.h"
#include "formats/images/image.h"
#include "plan/value_columns.h"
#include "trireme/arrow/data.h"

// read_images().

namespace trireme::data {
namespace {

using ::arrow::fs::FileInfo;
using dataset::BatchPointer;
using dataset::FilePart;
using dataset::SchemaPointer;

// Number of images that are inspected to find out whether all have the same shape.
constexpr std::size_t kInspectedImages = 64;
// Bytes that contain the shape of nearly every image.
constexpr std::int64_t kHeaderBytes = 65536;
// Estimated ratio of memory to file size, if only decoding would tell.
constexpr std::int64_t kPixelRatio = 10;
constexpr std::int64_t kBatchFiles = 8;

::arrow::Status named(const FileInfo& file, const ::arrow::Status& status) {
  if (status.ok() || status.IsIOError()) return status;
  return status.WithMessage(file.path(), " is not a readable image: ", status.message());
}

struct ImageReader {
  std::shared_ptr<::arrow::fs::FileSystem> filesystem;  // shared with the source
  formats::ImageRequest request;

  ::arrow::Result<Tensor> decode(const FileInfo& file) const {
    ARROW_ASSIGN_OR_RAISE(const auto content, dataset::read_whole(*filesystem, file));
    auto image = dataset::as_arrow(formats::decode_image(std::string_view(*content), request));
    ARROW_RETURN_NOT_OK(named(file, image.status()));
    return formats::tensor_of(*std::move(image));
  }

  ::arrow::Result<std::vector<std::int64_t>> look_at(const FileInfo& file) const {
    ARROW_ASSIGN_OR_RAISE(auto opened, filesystem->OpenInputFile(file));
    ARROW_ASSIGN_OR_RAISE(auto beginning, opened->ReadAt(0, kHeaderBytes));
    auto shape = dataset::as_arrow(formats::image_shape(std::string_view(*beginning), request));
    if (!shape.ok() && beginning->size() == kHeaderBytes) {
      ARROW_ASSIGN_OR_RAISE(const auto content, dataset::read_whole(*filesystem, file));
      shape = dataset::as_arrow(formats::image_shape(std::string_view(*content), request));
    }
    ARROW_RETURN_NOT_OK(named(file, shape.status()));
    return shape;
  }
};

// Of images with one shape, or of any shape.
plan::ValueType type_of(DType dtype, std::optional<std::vector<std::int64_t>> shape) {
  plan::ValueType type;
  type.kind = shape ? plan::ValueType::Kind::kTensor : plan::ValueType::Kind::kRagged;
  type.dtype = dtype;
  type.shape = std::move(shape).value_or(std::vector<std::int64_t>());
  return type;
}

::arrow::Status check_fits(const FileInfo& file, const Tensor& image, const plan::ValueType& type) {
  const auto here = type_of(image.dtype(), image.shape());
  if (here == type || type == type_of(image.dtype(), {})) return ::arrow::Status::OK();
  return ::arrow::Status::Invalid(
      file.path(), " is ", here.text(), ", but the first images are ", type.text(),
      ": read_images(paths, {.size = {{height, width}}, .mode = \"RGB\"}) makes them equal");
}

class ImageSource final : public dataset::FileSource {
 public:
  ImageSource(std::vector<std::string> paths, dataset::FileSourceOptions options, formats::ImageRequest request)
      : FileSource("read_images", std::move(paths), std::move(options)), request_(request) {}

  bool costly() const override { return true; }

 private:
  ImageReader reader() const { return {filesystem(), request_}; }

  ::arrow::Result<SchemaPointer> infer(const FileInfo& file) override {
    ARROW_ASSIGN_OR_RAISE(const Tensor first, reader().decode(file));
    bool same = request_.size && request_.mode;
    if (!same) {
      ARROW_ASSIGN_OR_RAISE(same, others_are(first.shape()));
    }
    row_bytes_ = same ? static_cast<std::int64_t>(first.num_bytes()) : 0;
    columns_ = {{"image", type_of(first.dtype(), same ? std::optional(first.shape()) : std::nullopt)}};
    ARROW_ASSIGN_OR_RAISE(auto none, dataset::as_arrow(plan::record_of_rows({}, columns_)));
    return ::arrow::ImportSchema(&*none.schema);
  }

  ::arrow::Result<bool> others_are(const std::vector<std::int64_t>& shape) {
    std::vector<const FileInfo*> chosen;
    const std::size_t step = std::max<std::size_t>(1, files().size() / kInspectedImages);
    for (std::size_t i = 0; i < files().size(); i += step) chosen.push_back(&files()[i]);
    std::vector<std::vector<std::int64_t>> shapes(chosen.size());
    ARROW_RETURN_NOT_OK(dataset::in_threads(chosen.size(), [&](std::size_t i) {
      const auto found = reader().look_at(*chosen[i]).Value(&shapes[i]);
      return skips_bad_files() ? ::arrow::Status::OK() : found;
    }));
    return std::all_of(shapes.begin(), shapes.end(), [&](const auto& each) { return each.empty() || each == shape; });
  }

  ::arrow::Result<std::vector<FilePart>> plan(const std::vector<FileInfo>& files) override {
    return dataset::together(
        files, [this](const FileInfo& file) { return row_bytes_ > 0 ? row_bytes_ : kPixelRatio * file.size(); });
  }

  ::arrow::Result<std::shared_ptr<::arrow::RecordBatchReader>> read(const FilePart& part, std::int64_t row) override {
    const std::int64_t mean = std::max<std::int64_t>(part.bytes / *part.rows, 1);
    const std::int64_t step = std::clamp(dataset::kBatchBytes / mean, std::int64_t{1}, kBatchFiles);
    auto make = [step, images_of = reader(), schema = body(), columns = columns_, files = part.files,
                 at = row]() mutable -> ::arrow::Result<BatchPointer> {
      const std::int64_t end = std::min(at + step, static_cast<std::int64_t>(files.size()));
      std::vector<Dict> rows;
      for (; at < end; ++at) {
        const FileInfo& file = files[static_cast<std::size_t>(at)];
        ARROW_ASSIGN_OR_RAISE(auto image, images_of.decode(file));
        ARROW_RETURN_NOT_OK(check_fits(file, image, columns.front().second));
        rows.push_back({{"image", std::move(image)}});
      }
      if (rows.empty()) return nullptr;
      ARROW_ASSIGN_OR_RAISE(auto record, dataset::as_arrow(plan::record_of_rows(rows, columns)));
      return ::arrow::ImportRecordBatch(&*record.array, schema);
    };
    return std::make_shared<dataset::MadeBatches>(body(), std::move(make));
  }

  formats::ImageRequest request_;
  plan::Columns columns_;
  std::int64_t row_bytes_ = 0;  // 0: shapes differ
};

}  // namespace

Dataset read_images(const Paths& paths, const ReadImagesOptions& options) {
  formats::ImageRequest request;
  if (options.size) {
    const auto [height, width] = *options.size;
    constexpr std::int64_t kLargest = 65535;
    if (height < 1 || width < 1 || height > kLargest || width > kLargest) {
      throw ValueError("read_images: size = {" + std::to_string(height) + ", " + std::to_string(width) +
                       "}: expected {height, width}, both at least 1");
    }
    request.size = {height, width};
  }
  if (options.max_pixels < 1) {
    throw ValueError("read_images: max_pixels = " + std::to_string(options.max_pixels) + ": must be at least 1");
  }
  request.max_pixels = options.max_pixels;
  if (!options.mode.empty()) {
    request.mode = formats::find_image_mode(options.mode);
    if (!request.mode) {
      throw ValueError("read_images: mode = '" + options.mode + "': expected one of " + formats::image_modes());
    }
  }
  const std::vector<std::string> endings = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif"};
  return from_source(std::make_shared<ImageSource>(
      paths.paths, dataset::FileSourceOptions{endings, options.include_paths, options.skip_bad_files}, request));
}

}  // namespace trireme::data
