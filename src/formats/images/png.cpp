#ifdef TRIREME_HAS_PNG
#include <png.h>

#include <csetjmp>
#include <cstring>
#endif

#include "formats/images/decoders.h"
#include "formats/images/image.h"

namespace trireme::formats {

#ifdef TRIREME_HAS_PNG
namespace {

struct Reading {
  std::string_view rest;
  std::string problem;
};

void read_bytes(png_structp png, png_bytep out, std::size_t size) {
  auto* reading = static_cast<Reading*>(png_get_io_ptr(png));
  if (reading->rest.size() < size) png_error(png, "it is truncated");
  std::memcpy(out, reading->rest.data(), size);
  reading->rest.remove_prefix(size);
}

void fail(png_structp png, png_const_charp message) {
  static_cast<Reading*>(png_get_error_ptr(png))->problem = message;
  png_longjmp(png, 1);
}

void ignore(png_structp, png_const_charp) {}

void read_palette(png_structp png, png_infop info, Image& image) {
  png_colorp colors = nullptr;
  int count = 0;
  png_get_PLTE(png, info, &colors, &count);
  for (int i = 0; i < count; ++i) image.palette.push_back({colors[i].red, colors[i].green, colors[i].blue, 255});
  png_bytep alphas = nullptr;
  int transparent = 0;
  if (png_get_tRNS(png, info, &alphas, &transparent, nullptr) == 0 || !alphas) return;
  for (int i = 0; i < std::min(transparent, count); ++i) image.palette[static_cast<std::size_t>(i)][3] = alphas[i];
}

// The mode in Pillow, and the libpng transformations for it.
void choose_output(png_structp png, png_infop info, Image& image) {
  const int depth = png_get_bit_depth(png, info);
  switch (png_get_color_type(png, info)) {
    case PNG_COLOR_TYPE_GRAY:
      image.mode = depth == 1 ? ImageMode::kBit : depth == 16 ? ImageMode::kGrey16 : ImageMode::kGrey;
      if (depth < 8) png_set_expand_gray_1_2_4_to_8(png);
      if (depth == 16) png_set_swap(png);  // to little-endian
      return;
    case PNG_COLOR_TYPE_PALETTE:
      image.mode = ImageMode::kPalette;
      png_set_packing(png);
      read_palette(png, info, image);
      return;
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      image.mode = depth == 16 ? ImageMode::kRgba : ImageMode::kGreyAlpha;
      if (depth == 16) png_set_gray_to_rgb(png);
      break;
    case PNG_COLOR_TYPE_RGB: image.mode = ImageMode::kRgb; break;
    default: image.mode = ImageMode::kRgba; break;
  }
  if (depth == 16) png_set_strip_16(png);
}

// No objects with destructors are created here: errors longjmp over it.
bool decode_into(png_structp png, png_infop info, std::int64_t most, bool only_header, Image& image,
                 std::vector<png_bytep>& rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  image.height = static_cast<std::int64_t>(png_get_image_height(png, info));
  image.width = static_cast<std::int64_t>(png_get_image_width(png, info));
  choose_output(png, info, image);
  if (only_header || !check_pixels(image.height, image.width, most).ok()) return true;
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const std::size_t stride = static_cast<std::size_t>(image.width * image.channels());
  if (png_get_rowbytes(png, info) != stride) png_error(png, "its rows have an unexpected length");
  image.pixels.resize(stride * static_cast<std::size_t>(image.height));
  rows.resize(static_cast<std::size_t>(image.height));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = image.pixels.data() + i * stride;
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);
  return true;
}

}  // namespace

base::Result<Image> decode_png(std::string_view content, const ImageRequest& request, bool only_header) {
  Reading reading{content, {}};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, fail, ignore);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  if (!info) return base::error("libpng is out of memory");
  png_set_read_fn(png, &reading, read_bytes);
  Image image;
  std::vector<png_bytep> rows;
  const bool decoded = decode_into(png, info, request.max_pixels, only_header, image, rows);
  png_destroy_read_struct(&png, &info, nullptr);
  if (!decoded) return base::Error(reading.problem);
  TRIREME_TRY(check_pixels(image.height, image.width, request.max_pixels));
  return image;
}
#else
base::Result<Image> decode_png(std::string_view, const ImageRequest&, bool) {
  return base::error("PNG images need libpng, but trireme::data was built without it: install libpng-dev and rebuild");
}
#endif

}  // namespace trireme::formats
