#include "preprocess/number_types.h"

#include <algorithm>

#include "data/array_values.h"

namespace trireme::preprocess {
namespace {

using data::dtype_of_format;

struct Traits {
  enum class Class { kBool, kUnsigned, kSigned, kFloat };
  Class kind;
  int bytes;
};

Traits traits_of(DType dtype) {
  constexpr std::string_view kKinds = "buif";  // in the order of Class
  const auto* known = data::find_element_type(dtype);
  return {known ? static_cast<Traits::Class>(kKinds.find(known->kind())) : Traits::Class::kFloat,
          static_cast<int>(size_of(dtype))};
}

DType sized(int bytes, DType one, DType two, DType four, DType eight) {
  return bytes == 1 ? one : bytes == 2 ? two : bytes == 4 ? four : eight;
}

DType signed_of(int bytes) { return sized(bytes, DType::kI8, DType::kI16, DType::kI32, DType::kI64); }
DType float_of(int bytes) { return sized(bytes, DType::kF16, DType::kF16, DType::kF32, DType::kF64); }

}  // namespace

DType number_type(std::string_view format) { return dtype_of_format(format).value_or(DType::kF64); }

DType common_type(DType a, DType b) {
  using Class = Traits::Class;
  if (traits_of(a).kind > traits_of(b).kind) std::swap(a, b);
  const auto [small_kind, small] = traits_of(a);
  const auto [kind, bytes] = traits_of(b);
  if (small_kind == Class::kBool) return b;
  if (small_kind == kind) return small > bytes ? a : b;
  // A float holds integers of half its size.
  if (kind == Class::kFloat) return float_of(std::max(bytes, std::min(small * 2, 8)));
  // Unsigned and signed: one size larger than the unsigned type.
  if (small < bytes) return b;
  return small == 8 ? DType::kF64 : signed_of(small * 2);
}

// Rounds to nearest, ties to even.
std::uint16_t half_of(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::abs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const int exponent = size == 0 ? -14 : std::max(std::ilogb(size), -14);
  const auto scaled = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | (((exponent + 14) << 10) + scaled));
}

}  // namespace trireme::preprocess
