#include <algorithm>
#include <cmath>
#include <type_traits>

#include "image.h"

// Colours and sizes, with Pillow's arithmetic.

namespace trireme::arrow {
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
  const std::uint8_t grey = at[1] != 0 ? 255 : at[0];  // as Pillow: what is brighter is cut off
  return {grey, grey, grey, 255};
}

bool is_grey(ImageMode mode) {
  return mode == ImageMode::kBit || mode == ImageMode::kGrey || mode == ImageMode::kGreyAlpha ||
         mode == ImageMode::kGrey16;
}

constexpr int kPrecision = 32 - 8 - 2;

// 32 bits are enough for bytes, and twice as fast.
template <typename T>
using Sum = std::conditional_t<sizeof(T) == 1, std::int32_t, std::int64_t>;

// For each place of the result: the first pixel that it is made of, and how much of each.
struct Weights {
  struct Span {
    std::int64_t first = 0;
    std::vector<std::int32_t> parts;
  };
  std::vector<Span> spans;
};

// A triangle as wide as what becomes one pixel.
Weights weights_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(scale, 1.0);
  const double narrow = 1.0 / support;  // to the last bit as Pillow has it
  Weights weights;
  for (std::int64_t place = 0; place < to; ++place) {
    const double center = (static_cast<double>(place) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const auto end = std::min(from, static_cast<std::int64_t>(center + support + 0.5));
    std::vector<double> parts;
    double sum = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const double distance = std::abs((static_cast<double>(i) - center + 0.5) * narrow);
      parts.push_back(distance < 1 ? 1 - distance : 0);
      sum += parts.back();
    }
    Weights::Span span{first, {}};
    for (const double part : parts) {
      span.parts.push_back(static_cast<std::int32_t>(0.5 + (sum != 0 ? part / sum : part) * (1 << kPrecision)));
    }
    weights.spans.push_back(std::move(span));
  }
  return weights;
}

template <typename T>
T mixed(Sum<T> sum) {
  constexpr Sum<T> kMost = sizeof(T) == 1 ? 255 : 65535;
  return static_cast<T>(std::clamp<Sum<T>>(sum >> kPrecision, 0, kMost));
}

// Along rows: `lines` of them, each of pixels with so many channels.
template <typename T>
std::vector<std::uint8_t> across(const std::vector<std::uint8_t>& pixels, std::int64_t lines, std::int64_t from,
                                 std::int64_t to, std::int64_t channels) {
  const Weights weights = weights_of(from, to);
  std::vector<std::uint8_t> made(static_cast<std::size_t>(lines * to * channels) * sizeof(T));
  auto* out = reinterpret_cast<T*>(made.data());
  for (std::int64_t line = 0; line < lines; ++line) {
    const T* row = reinterpret_cast<const T*>(pixels.data()) + line * from * channels;
    for (const auto& span : weights.spans) {
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        Sum<T> sum = Sum<T>{1} << (kPrecision - 1);
        const T* at = row + span.first * channels + channel;
        for (const auto part : span.parts) {
          sum += static_cast<Sum<T>>(*at) * part;
          at += channels;
        }
        *out++ = mixed<T>(sum);
      }
    }
  }
  return made;
}

// Along columns: whole lines are summed up.
template <typename T>
std::vector<std::uint8_t> down(const std::vector<std::uint8_t>& pixels, std::int64_t from, std::int64_t to,
                               std::int64_t line_values) {
  const Weights weights = weights_of(from, to);
  std::vector<std::uint8_t> made(static_cast<std::size_t>(to * line_values) * sizeof(T));
  auto* out = reinterpret_cast<T*>(made.data());
  std::vector<Sum<T>> sums(static_cast<std::size_t>(line_values));
  for (const auto& span : weights.spans) {
    std::fill(sums.begin(), sums.end(), Sum<T>{1} << (kPrecision - 1));
    const T* line = reinterpret_cast<const T*>(pixels.data()) + span.first * line_values;
    for (const auto part : span.parts) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<Sum<T>>(line[i]) * part;
      line += line_values;
    }
    for (const auto sum : sums) *out++ = mixed<T>(sum);
  }
  return made;
}

template <typename T>
void bilinear(Image& image, std::int64_t height, std::int64_t width) {
  const std::int64_t channels = image.channels();
  if (image.width != width) image.pixels = across<T>(image.pixels, image.height, image.width, width, channels);
  if (image.height != height) image.pixels = down<T>(image.pixels, image.height, height, width * channels);
}

// Indices cannot be mixed.
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

// Colours count as much as they are seen.
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
    bilinear<std::uint16_t>(image, height, width);
  } else {
    if (alpha) weigh_by_alpha(image);
    bilinear<std::uint8_t>(image, height, width);
    if (alpha) unweigh_by_alpha(image);
  }
  image.height = height;
  image.width = width;
  return image;
}

}  // namespace trireme::arrow
