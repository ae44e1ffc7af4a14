#ifdef TRIREME_HAS_JPEG

#include <csetjmp>
#include <cstdio>
// After cstdio, which it needs.
#include <jerror.h>
#include <jpeglib.h>

#endif

#include "formats/images/decoders.h"
#include "formats/images/image.h"

namespace trireme::formats {

#ifdef TRIREME_HAS_JPEG
namespace {

// libjpeg reports errors through a callback that must not return.
struct Failure {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void fail(j_common_ptr info) {
  auto* failure = reinterpret_cast<Failure*>(info->err);
  info->err->format_message(info, failure->message);
  std::longjmp(failure->jump, 1);
}

// Ignores warnings, like Pillow, but a truncated image is an error.
void warn(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) fail(info);
}

// A large image can be decoded at a lower resolution if the result is small.
unsigned reduction(const jpeg_decompress_struct& info, const ImageRequest& request) {
  if (!request.size) return 1;
  const std::int64_t fits = std::min(static_cast<std::int64_t>(info.image_width) / (2 * (*request.size)[1]),
                                     static_cast<std::int64_t>(info.image_height) / (2 * (*request.size)[0]));
  return fits >= 8 ? 8 : fits >= 4 ? 4 : fits >= 2 ? 2 : 1;
}

void choose_output(jpeg_decompress_struct& info, const ImageRequest& request, Image& image) {
  if (info.num_components == 1) {
    image.mode = ImageMode::kGrey;
    info.out_color_space = JCS_GRAYSCALE;
  } else if (info.num_components == 4) {
    image.mode = ImageMode::kCmyk;
    info.out_color_space = JCS_CMYK;
  } else if (request.size && request.mode == ImageMode::kGrey && info.jpeg_color_space == JCS_YCbCr) {
    image.mode = ImageMode::kGrey;
    info.out_color_space = JCS_GRAYSCALE;
  } else {
    image.mode = ImageMode::kRgb;
    info.out_color_space = JCS_RGB;
  }
  info.scale_num = 1;
  info.scale_denom = reduction(info, request);
  jpeg_calc_output_dimensions(&info);
  image.height = static_cast<std::int64_t>(info.output_height);
  image.width = static_cast<std::int64_t>(info.output_width);
}

// No objects with destructors here: errors longjmp over it.
bool decode_into(jpeg_decompress_struct& info, Failure& failure, std::string_view content, const ImageRequest& request,
                 bool only_header, Image& image, bool& too_large) {
  if (setjmp(failure.jump) != 0) return false;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(content.data()), content.size());
  jpeg_read_header(&info, TRUE);
  // A progressive image is held at full size, whatever size it is decoded to.
  too_large = !check_pixels(info.image_height, info.image_width, request.max_pixels).ok();
  if (too_large) return true;
  choose_output(info, request, image);
  if (only_header) return true;
  jpeg_start_decompress(&info);
  const std::size_t stride = static_cast<std::size_t>(image.width * image.channels());
  image.pixels.resize(stride * static_cast<std::size_t>(image.height));
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = image.pixels.data() + info.output_scanline * stride;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

base::Result<Image> decode_jpeg(std::string_view content, const ImageRequest& request, bool only_header) {
  jpeg_decompress_struct info{};
  Failure failure{};
  info.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = fail;
  failure.manager.emit_message = warn;
  Image image;
  bool too_large = false;
  const bool decoded = decode_into(info, failure, content, request, only_header, image, too_large);
  const std::int64_t height = info.image_height;
  const std::int64_t width = info.image_width;
  jpeg_destroy_decompress(&info);
  if (!decoded) return base::Error(failure.message);
  if (too_large) TRIREME_TRY(check_pixels(height, width, request.max_pixels));
  if (image.mode == ImageMode::kCmyk) {
    for (auto& value : image.pixels) value = static_cast<std::uint8_t>(255 - value);  // Adobe writes inverted values
  }
  return image;
}
#else
base::Result<Image> decode_jpeg(std::string_view, const ImageRequest&, bool) {
  return base::error(
      "JPEG images need libjpeg, but trireme::data was built without it: install libjpeg-dev and rebuild");
}
#endif

}  // namespace trireme::formats
