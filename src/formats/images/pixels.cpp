#include <algorithm>
#include <cstring>

#include "formats/images/image.h"
#include "formats/resample.h"

// Conversion of modes and sizes, with Pillow's arithmetic.

namespace trireme::formats {
namespace {

std::uint8_t multiply(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

std::uint8_t grey_of(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U) >> 16);
}

// One pixel as red, green, blue, alpha.
std::array<std::uint8_t, 4> rgba_of(const Image& image, std::size_t pixel) {
  const std::uint8_t* at = image.pixels.data() + pixel * static_cast<std::size_t>(image.channels());
  switch (image.mode) {
    case ImageMode::kBit:
    case ImageMode::kGrey: return {at[0], at[0], at[0], 255};
    case ImageMode::kGreyAlpha: return {at[0], at[0], at[0], at[1]};
    case ImageMode::kPalette:
      return at[0] < image.palette.size() ? image.palette[at[0]] : std::array<std::uint8_t, 4>{0, 0, 0, 255};
    case ImageMode::kRgb: return {at[0], at[1], at[2], 255};
    case ImageMode::kRgba: return {at[0], at[1], at[2], at[3]};
    case ImageMode::kCmyk: {
      const unsigned light = 255U - at[3];
      const auto ink = [&](int i) { return static_cast<std::uint8_t>(light - multiply(at[i], light)); };
      return {ink(0), ink(1), ink(2), 255};
    }
    case ImageMode::kGrey16: break;
  }
  const std::uint8_t grey = at[1] != 0 ? 255 : at[0];  // clipped, as in Pillow
  return {grey, grey, grey, 255};
}

bool is_grey(ImageMode mode) {
  return mode == ImageMode::kBit || mode == ImageMode::kGrey || mode == ImageMode::kGreyAlpha ||
         mode == ImageMode::kGrey16;
}

void resample_grey16(Image& image, std::int64_t height, std::int64_t width) {
  std::vector<std::uint16_t> values(image.pixels.size() / 2), made(static_cast<std::size_t>(height * width));
  std::memcpy(values.data(), image.pixels.data(), image.pixels.size());
  formats::resample_grey16(values.data(), image.height, image.width, made.data(), height, width);
  image.pixels.resize(made.size() * 2);
  std::memcpy(image.pixels.data(), made.data(), image.pixels.size());
}

void resample_bytes(Image& image, std::int64_t height, std::int64_t width) {
  const std::int64_t channels = image.channels();
  std::vector<std::uint8_t> made(static_cast<std::size_t>(height * width * channels));
  resample({image.pixels.data(), image.height, image.width, channels, channels}, made.data(), height, width);
  image.pixels = std::move(made);
}

// Palette indices cannot be interpolated.
void nearest(Image& image, std::int64_t height, std::int64_t width) {
  std::vector<std::uint8_t> made;
  made.reserve(static_cast<std::size_t>(height * width));
  const auto place = [](std::int64_t at, std::int64_t from, std::int64_t to) {
    const double source = (static_cast<double>(at) + 0.5) * (static_cast<double>(from) / static_cast<double>(to));
    return std::min(from - 1, static_cast<std::int64_t>(source));
  };
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t line = place(y, image.height, height) * image.width;
    for (std::int64_t x = 0; x < width; ++x) {
      made.push_back(image.pixels[static_cast<std::size_t>(line + place(x, image.width, width))]);
    }
  }
  image.pixels = std::move(made);
}

// Luma weights.
void weigh_by_alpha(Image& image) {
  const auto channels = static_cast<std::size_t>(image.channels());
  for (std::size_t at = 0; at < image.pixels.size(); at += channels) {
    const unsigned alpha = image.pixels[at + channels - 1];
    for (std::size_t i = at; i + 1 < at + channels; ++i) image.pixels[i] = multiply(image.pixels[i], alpha);
  }
}

void unweigh_by_alpha(Image& image) {
  const auto channels = static_cast<std::size_t>(image.channels());
  for (std::size_t at = 0; at < image.pixels.size(); at += channels) {
    const unsigned alpha = image.pixels[at + channels - 1];
    if (alpha == 255 || alpha == 0) continue;
    for (std::size_t i = at; i + 1 < at + channels; ++i) {
      image.pixels[i] = static_cast<std::uint8_t>(std::min(255U, 255U * image.pixels[i] / alpha));
    }
  }
}

}  // namespace

Image converted(Image image, ImageMode mode) {
  if (image.mode == mode) return image;
  Image made{mode, image.height, image.width, {}};
  const auto count = static_cast<std::size_t>(image.height * image.width);
  const auto channels = static_cast<std::size_t>(made.channels());
  made.pixels.resize(count * channels);
  const bool grey = is_grey(image.mode);
  std::uint8_t* out = made.pixels.data();
  for (std::size_t pixel = 0; pixel < count; ++pixel, out += channels) {
    const auto rgba = rgba_of(image, pixel);
    if (mode == ImageMode::kRgb || mode == ImageMode::kRgba) {
      std::copy_n(rgba.begin(), channels, out);
    } else {
      out[0] = grey ? rgba[0] : grey_of(rgba.data());
      if (mode == ImageMode::kGreyAlpha) out[1] = rgba[3];
    }
  }
  return made;
}

Image resized(Image image, std::int64_t height, std::int64_t width) {
  if (image.height == height && image.width == width) return image;
  const bool alpha = image.mode == ImageMode::kGreyAlpha || image.mode == ImageMode::kRgba;
  if (image.mode == ImageMode::kBit || image.mode == ImageMode::kPalette) {
    nearest(image, height, width);
  } else if (image.mode == ImageMode::kGrey16) {
    resample_grey16(image, height, width);
  } else {
    if (alpha) weigh_by_alpha(image);
    resample_bytes(image, height, width);
    if (alpha) unweigh_by_alpha(image);
  }
  image.height = height;
  image.width = width;
  return image;
}

}  // namespace trireme::formats
