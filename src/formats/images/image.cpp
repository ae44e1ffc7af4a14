#include "formats/images/image.h"

#include <cstring>

#include "formats/images/decoders.h"

namespace trireme::formats {
namespace {

struct ModeName {
  std::string_view name;
  ImageMode mode;
};
constexpr std::array<ModeName, 4> kModes = {
    {{"L", ImageMode::kGrey}, {"LA", ImageMode::kGreyAlpha}, {"RGB", ImageMode::kRgb}, {"RGBA", ImageMode::kRgba}}};

enum class Format { kJpeg, kPng, kOther };

Format format_of(std::string_view content) {
  if (content.starts_with("\xFF\xD8\xFF")) return Format::kJpeg;
  if (content.starts_with("\x89PNG\r\n\x1A\n")) return Format::kPng;
  return Format::kOther;
}

base::Result<Image> decode(std::string_view content, const ImageRequest& request, bool only_header) {
  switch (format_of(content)) {
    case Format::kJpeg: return decode_jpeg(content, request, only_header);
    case Format::kPng: return decode_png(content, request, only_header);
    case Format::kOther: break;
  }
  return decode_others(content, request);
}

}  // namespace

std::int64_t Image::channels() const {
  switch (mode) {
    case ImageMode::kBit:
    case ImageMode::kGrey:
    case ImageMode::kPalette: return 1;
    case ImageMode::kGreyAlpha:
    case ImageMode::kGrey16: return 2;  // two bytes
    case ImageMode::kRgb: return 3;
    case ImageMode::kRgba:
    case ImageMode::kCmyk: break;
  }
  return 4;
}

std::optional<ImageMode> find_image_mode(std::string_view name) {
  for (const auto& each : kModes) {
    if (each.name == name) return each.mode;
  }
  return std::nullopt;
}

std::string image_modes() {
  std::string names;
  for (const auto& each : kModes) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

base::Result<void> check_pixels(std::int64_t height, std::int64_t width, std::int64_t most) {
  if (height > 0 && width > 0 && height <= most / width) return {};
  return base::error("it has {} x {} pixels, more than max_pixels = {}: raise it if that is intended", width, height,
                     most);
}

base::Result<Image> decode_image(std::string_view content, const ImageRequest& request) {
  TRIREME_ASSIGN(auto image, decode(content, request, false));
  if (request.mode) image = converted(std::move(image), *request.mode);
  if (request.size) image = resized(std::move(image), (*request.size)[0], (*request.size)[1]);
  return image;
}

base::Result<std::vector<std::int64_t>> image_shape(std::string_view content, const ImageRequest& request) {
  TRIREME_ASSIGN(auto image, decode(content, {.max_pixels = request.max_pixels}, true));
  if (request.mode) image.mode = *request.mode;
  if (request.size) std::tie(image.height, image.width) = std::tuple((*request.size)[0], (*request.size)[1]);
  return shape_of(image);
}

std::vector<std::int64_t> shape_of(const Image& image) {
  const std::int64_t channels = image.channels();
  if (channels == 1 || image.mode == ImageMode::kGrey16) return {image.height, image.width};
  return {image.height, image.width, channels};
}

Tensor tensor_of(Image image) {
  DType dtype = DType::kU8;
  if (image.mode == ImageMode::kGrey16) dtype = DType::kU16;
  if (image.mode == ImageMode::kBit) {
    dtype = DType::kBool;
    for (auto& pixel : image.pixels) pixel = pixel != 0 ? 1 : 0;
  }
  auto owner = std::make_shared<Image>(std::move(image));
  return Tensor::view(dtype, shape_of(*owner), owner->pixels.data(), owner);
}

}  // namespace trireme::formats
