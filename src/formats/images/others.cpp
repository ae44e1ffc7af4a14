#ifdef TRIREME_HAS_STB
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#define STBI_ONLY_PNM
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop
#endif

#include <limits>
#include <memory>

#include "formats/images/decoders.h"
#include "formats/images/image.h"

// BMP, GIF (first frame) and PNM.

namespace trireme::formats {

#ifdef TRIREME_HAS_STB
base::Result<Image> decode_others(std::string_view content, const ImageRequest& request) {
  if (content.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return base::error("it is larger than 2 GB");
  }
  const auto* bytes = reinterpret_cast<const stbi_uc*>(content.data());
  const int size = static_cast<int>(content.size());
  int width = 0;
  int height = 0;
  int channels = 0;
  if (stbi_info_from_memory(bytes, size, &width, &height, &channels) == 0) {
    return base::error("it is not a JPEG, PNG, BMP, GIF or PNM image");
  }
  TRIREME_TRY(check_pixels(height, width, request.max_pixels));
  // Without transparency, which is rare in these formats; Pillow also drops it from GIF and BMP.
  const int wanted = channels < 3 ? 1 : 3;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(bytes, size, &width, &height, &channels, wanted), stbi_image_free);
  if (!pixels) return base::Error(stbi_failure_reason());
  const auto count = static_cast<std::size_t>(width) * static_cast<std::size_t>(height * wanted);
  return Image{wanted == 1 ? ImageMode::kGrey : ImageMode::kRgb, height, width, {pixels.get(), pixels.get() + count}};
}
#else
base::Result<Image> decode_others(std::string_view, const ImageRequest&) {
  return base::error(
      "it is neither JPEG nor PNG; BMP, GIF and PNM images need stb_image, but trireme::data was built without it: "
      "install libstb-dev and rebuild");
}
#endif

}  // namespace trireme::formats
