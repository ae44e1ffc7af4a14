#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/export.h"

// Images brought to a size, with Pillow's arithmetic and to its last bit: triangles as wide as what becomes one pixel,
// in fixed point, along the rows first. (Pillow 13 takes the columns first where that is less work, and rounds
// otherwise then; what is read must not depend on the version of a library.)

namespace trireme::data {

// Pixels of bytes, row by row. They may be further apart than they have channels: Pillow keeps red, green and blue in
// four bytes.
struct Pixels {
  const std::uint8_t* data = nullptr;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;  // up to 4
  std::int64_t step = 0;      // bytes from one pixel to the next: up to 4

  std::int64_t bytes() const { return height * width * step; }
};

// 16 bits of grey, to height * width values.
TRIREME_API void resample_grey16(const std::uint16_t* values, std::int64_t from_height, std::int64_t from_width,
                                 std::uint16_t* out, std::int64_t height, std::int64_t width);

// To height * width * channels bytes.
TRIREME_API void resample(const Pixels& pixels, std::uint8_t* out, std::int64_t height, std::int64_t width);

}  // namespace trireme::data
