#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "data/arrow_c.h"
#include "data/bits.h"
#include "data/element_types.h"
#include "data/unaligned.h"

// Single values of Arrow arrays. A `row` counts from the start of the buffers, an `index` from the array's offset.

namespace trireme::data {

inline float half_at(const ArrowArray& array, std::int64_t row) {
  const auto half = load<std::uint16_t>(array.buffers[1], row);
  const int exponent = half >> 10 & 0x1f;
  const int fraction = half & 0x3ff;
  float value = 0;
  if (exponent == 0x1f) {
    value = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  } else {
    value = std::ldexp(static_cast<float>(exponent ? fraction + 0x400 : fraction), std::max(exponent, 1) - 25);
  }
  return half & 0x8000 ? -value : value;
}

// By Arrow format. Booleans are numbers, too.
inline bool is_whole(std::string_view format) {
  return format.size() == 1 && std::string_view("cCsSiIlL").find(format[0]) != std::string_view::npos;
}
inline bool is_floating(std::string_view format) { return format == "e" || format == "f" || format == "g"; }
inline bool is_number(std::string_view format) { return format == "b" || is_whole(format) || is_floating(format); }
inline bool is_text(std::string_view format) { return format == "u" || format == "U"; }
inline bool is_bytes(std::string_view format) { return format == "z" || format == "Z"; }
inline bool is_list(std::string_view format) { return format == "+l" || format == "+L" || format.starts_with("+w:"); }

inline bool null_at(const ArrowArray& array, std::int64_t index) {
  if (array.n_buffers == 0) return true;
  if (array.null_count == 0 || !array.buffers[0]) return false;
  const std::int64_t row = index + array.offset;
  return (static_cast<const std::uint8_t*>(array.buffers[0])[row / 8] >> (row % 8) & 1) == 0;
}

// Whether one of the values from first on is null.
inline bool any_null(const ArrowArray& array, std::int64_t first, std::int64_t count) {
  if (array.n_buffers == 0) return count > 0;
  if (array.null_count == 0 || !array.buffers[0]) return false;
  const auto* valid = static_cast<const std::byte*>(array.buffers[0]);
  return count_bits(valid, array.offset + first, count) < count;
}

// Also of dates and times of 64 bits; uint64 wraps around.
inline std::int64_t whole_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t row = index + array.offset;
  const void* values = array.buffers[1];
  switch (type.format[0]) {
    case 'b': return load<std::uint8_t>(values, row / 8) >> (row % 8) & 1;
    case 'c': return load<std::int8_t>(values, row);
    case 'C': return load<std::uint8_t>(values, row);
    case 's': return load<std::int16_t>(values, row);
    case 'S': return load<std::uint16_t>(values, row);
    case 'i': return load<std::int32_t>(values, row);
    case 'I': return load<std::uint32_t>(values, row);
    case 'L': return static_cast<std::int64_t>(load<std::uint64_t>(values, row));
    default: return load<std::int64_t>(values, row);
  }
}

inline double number_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t row = index + array.offset;
  switch (type.format[0]) {
    case 'e': return half_at(array, row);
    case 'f': return load<float>(array.buffers[1], row);
    case 'g': return load<double>(array.buffers[1], row);
    case 'L': return static_cast<double>(load<std::uint64_t>(array.buffers[1], row));
    default: return static_cast<double>(whole_at(type, array, index));
  }
}

// For text and bytes.
inline std::string_view text_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t row = index + array.offset;
  const bool narrow = type.format[0] == 'u' || type.format[0] == 'z';
  const auto offset = [&](std::int64_t at) -> std::int64_t {
    return narrow ? load<std::int32_t>(array.buffers[1], at) : load<std::int64_t>(array.buffers[1], at);
  };
  const std::int64_t begin = offset(row);
  const std::int64_t end = offset(row + 1);
  if (begin == end) return {};
  return {static_cast<const char*>(array.buffers[2]) + begin, static_cast<std::size_t>(end - begin)};
}

// The elements of a list: values from first on.
struct Inside {
  const ArrowSchema* type = nullptr;
  const ArrowArray* values = nullptr;
  std::int64_t first = 0;
  std::int64_t count = 0;
};
inline Inside list_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t row = index + array.offset;
  Inside inside{type.children[0], array.children[0], 0, 0};
  if (type.format[1] == 'w') {
    inside.count = std::atoll(type.format + 3);
    inside.first = row * inside.count;
    return inside;
  }
  const auto offset = [&](std::int64_t at) -> std::int64_t {
    return type.format[1] == 'l' ? load<std::int32_t>(array.buffers[1], at) : load<std::int64_t>(array.buffers[1], at);
  };
  inside.first = offset(row);
  inside.count = offset(row + 1) - inside.first;
  return inside;
}

}  // namespace trireme::data
