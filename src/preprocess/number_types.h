#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "preprocess/columns.h"
#include "trireme/tensor.h"

// Number types and conversions between them, as in NumPy.

namespace trireme::preprocess {

// The type of a column of numbers.
DType number_type(std::string_view format);
// The smallest type that holds both.
DType common_type(DType a, DType b);
std::uint16_t half_of(double value);

// A number of a column as T; NaN for null.
template <typename T>
struct AsNumber {
  using Stored = T;
  static T of(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
    if (null_at(array, index)) return T();
    if (!is_floating(type.format)) return static_cast<T>(whole_at(type, array, index));
    const double value = number_at(type, array, index);
    if constexpr (std::is_same_v<T, bool>) return value != 0;
    // Values out of range become 0, so that the result is defined.
    constexpr double kEnd = 2.0 * static_cast<double>(std::uint64_t{1} << (std::numeric_limits<T>::digits - 1));
    return value < kEnd && value >= (std::is_signed_v<T> ? -kEnd : 0) ? static_cast<T>(value) : T();
  }
};

template <std::floating_point T>
struct AsNumber<T> {
  using Stored = T;
  static T of(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
    if (null_at(array, index)) return std::numeric_limits<T>::quiet_NaN();
    return static_cast<T>(number_at(type, array, index));
  }
};

struct AsHalf {
  using Stored = std::uint16_t;
  static std::uint16_t of(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
    return half_of(AsNumber<double>::of(type, array, index));
  }
};

// Calls `function` with one of the types above.
template <typename Function>
void with_number_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::kBool: return function(AsNumber<bool>());
    case DType::kU8: return function(AsNumber<std::uint8_t>());
    case DType::kI8: return function(AsNumber<std::int8_t>());
    case DType::kU16: return function(AsNumber<std::uint16_t>());
    case DType::kI16: return function(AsNumber<std::int16_t>());
    case DType::kU32: return function(AsNumber<std::uint32_t>());
    case DType::kI32: return function(AsNumber<std::int32_t>());
    case DType::kU64: return function(AsNumber<std::uint64_t>());
    case DType::kI64: return function(AsNumber<std::int64_t>());
    case DType::kF16: return function(AsHalf());
    case DType::kF32: return function(AsNumber<float>());
    default: return function(AsNumber<double>());
  }
}

}  // namespace trireme::preprocess
