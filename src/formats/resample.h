#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/export.h"

// Resizes images with Pillow's arithmetic, bit for bit: a triangle filter in fixed point, rows first. (Pillow 13 starts
// with the columns if that is less work, and then rounds differently; the result must not depend on the version of a
// library.)

namespace trireme::formats {

// Pixels of bytes, row by row. The distance between pixels may exceed the number of channels: Pillow keeps RGB in four
// bytes.
struct Pixels {
  const std::uint8_t* data = nullptr;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;  // up to 4
  std::int64_t step = 0;      // bytes from one pixel to the next: up to 4

  std::int64_t bytes() const { return height * width * step; }
};

// 16-bit grayscale, to height * width values.
TRIREME_API void resample_grey16(const std::uint16_t* values, std::int64_t from_height, std::int64_t from_width,
                                 std::uint16_t* out, std::int64_t height, std::int64_t width);

// To height * width * channels bytes.
TRIREME_API void resample(const Pixels& pixels, std::uint8_t* out, std::int64_t height, std::int64_t width);

}  // namespace trireme::formats
