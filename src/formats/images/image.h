#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trireme/tensor.h"

// Images in Pillow's representation, so that both languages read the same pixels.

namespace trireme::formats {

enum class ImageMode : std::uint8_t { kBit, kGrey, kGreyAlpha, kPalette, kRgb, kRgba, kCmyk, kGrey16 };

struct Image {
  ImageMode mode = ImageMode::kRgb;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;                       // row by row, channels interleaved
  std::vector<std::array<std::uint8_t, 4>> palette = {};  // for kPalette: red, green, blue, alpha

  std::int64_t channels() const;
};

// The mode named "RGB" etc.; nothing for modes that images cannot be converted to.
std::optional<ImageMode> find_image_mode(std::string_view name);
// All valid names.
std::string image_modes();

struct ImageRequest {
  std::optional<ImageMode> mode = {};
  std::optional<std::array<std::int64_t, 2>> size = {};  // height and width
  std::int64_t max_pixels = 0;                           // of the file; larger images are refused
};

// Decodes a file to an image of that mode and size. The error has the reason, not the path.
base::Result<Image> decode_image(std::string_view content, const ImageRequest& request);
// The shape of the image, from its first bytes if possible.
base::Result<std::vector<std::int64_t>> image_shape(std::string_view content, const ImageRequest& request);

// [height, width, channels], without channels if it is 1.
std::vector<std::int64_t> shape_of(const Image& image);
Tensor tensor_of(Image image);

// Parts of decode_image().
base::Result<Image> decode_jpeg(std::string_view content, const ImageRequest& request, bool only_header);
base::Result<Image> decode_png(std::string_view content, const ImageRequest& request, bool only_header);
base::Result<Image> decode_others(std::string_view content, const ImageRequest& request);
Image converted(Image image, ImageMode mode);
Image resized(Image image, std::int64_t height, std::int64_t width);

}  // namespace trireme::formats
