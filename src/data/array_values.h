#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "data/arrow_c.h"
#include "trireme/tensor.h"

// Single values of Arrow arrays. Rows count from the start of the buffers.

namespace trireme::data {

// For a column of plain numbers or booleans; nothing for others.
inline std::optional<DType> dtype_of_format(std::string_view format) {
  if (format.size() != 1) return std::nullopt;
  switch (format.front()) {
    case 'b': return DType::kBool;
    case 'C': return DType::kU8;
    case 'c': return DType::kI8;
    case 'S': return DType::kU16;
    case 's': return DType::kI16;
    case 'I': return DType::kU32;
    case 'i': return DType::kI32;
    case 'L': return DType::kU64;
    case 'l': return DType::kI64;
    case 'e': return DType::kF16;
    case 'f': return DType::kF32;
    case 'g': return DType::kF64;
    default: return std::nullopt;
  }
}

// nullptr if Arrow has no such type.
inline const char* format_of(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "b";
    case DType::kU8: return "C";
    case DType::kI8: return "c";
    case DType::kU16: return "S";
    case DType::kI16: return "s";
    case DType::kU32: return "I";
    case DType::kI32: return "i";
    case DType::kU64: return "L";
    case DType::kI64: return "l";
    case DType::kF16: return "e";
    case DType::kF32: return "f";
    case DType::kF64: return "g";
    default: return nullptr;
  }
}

template <typename T>
T number_at(const ArrowArray& array, int buffer, std::int64_t row) {
  T value;
  std::memcpy(&value, static_cast<const char*>(array.buffers[buffer]) + row * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

inline float half_at(const ArrowArray& array, std::int64_t row) {
  const auto half = number_at<std::uint16_t>(array, 1, row);
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

template <typename Offset>
std::string_view text_at(const ArrowArray& array, std::int64_t row) {
  const auto begin = static_cast<std::int64_t>(number_at<Offset>(array, 1, row));
  const auto end = static_cast<std::int64_t>(number_at<Offset>(array, 1, row + 1));
  if (begin == end) return {};
  return {static_cast<const char*>(array.buffers[2]) + begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace trireme::data
