#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "trireme/tensor.h"

// The types of elements that Arrow and NumPy have, too, and their names there.

namespace trireme::data {

struct ElementType {
  DType dtype;
  const char* format;      // Arrow's
  const char* name;        // of Arrow's type
  std::string_view numpy;  // NumPy's, without the order of the bytes
  // 'b': boolean, 'u' and 'i': integers without and with a sign, 'f': float.
  constexpr char kind() const { return numpy[0]; }
};

inline constexpr auto kElementTypes = std::to_array<ElementType>({{DType::kBool, "b", "bool", "b1"},
                                                                  {DType::kU8, "C", "uint8", "u1"},
                                                                  {DType::kI8, "c", "int8", "i1"},
                                                                  {DType::kU16, "S", "uint16", "u2"},
                                                                  {DType::kI16, "s", "int16", "i2"},
                                                                  {DType::kU32, "I", "uint32", "u4"},
                                                                  {DType::kI32, "i", "int32", "i4"},
                                                                  {DType::kU64, "L", "uint64", "u8"},
                                                                  {DType::kI64, "l", "int64", "i8"},
                                                                  {DType::kF16, "e", "halffloat", "f2"},
                                                                  {DType::kF32, "f", "float", "f4"},
                                                                  {DType::kF64, "g", "double", "f8"}});

// nullptr if Arrow and NumPy have no such type.
inline const ElementType* find_element_type(DType dtype) {
  for (const auto& each : kElementTypes) {
    if (each.dtype == dtype) return &each;
  }
  return nullptr;
}

// For a column of plain numbers or booleans; nothing for others.
inline std::optional<DType> dtype_of_format(std::string_view format) {
  for (const auto& each : kElementTypes) {
    if (format == each.format) return each.dtype;
  }
  return std::nullopt;
}

// "u2" or "f4"; nothing for types of NumPy that tensors do not have.
inline std::optional<DType> dtype_of_numpy(std::string_view name) {
  for (const auto& each : kElementTypes) {
    if (name == each.numpy) return each.dtype;
  }
  return std::nullopt;
}

}  // namespace trireme::data
