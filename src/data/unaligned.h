#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "data/schema.h"

// Offsets and indices in foreign buffers, which may be unaligned.

namespace trireme::data {

template <typename T>
T load(const void* buffer, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(buffer) + index * static_cast<std::int64_t>(sizeof(T)), sizeof value);
  return value;
}

// Calls `function` with a value of the offset type of text and lists of that type.
template <typename Function>
auto with_offset_type(const Type& type, Function function) {
  return type.width == 4 ? function(std::int32_t{}) : function(std::int64_t{});
}

// Calls `function` with a value of the dictionary's index type.
template <typename Function>
auto with_index_type(const Type& type, Function function) {
  switch (type.index_format[0]) {
    case 'c': return function(std::int8_t{});
    case 'C': return function(std::uint8_t{});
    case 's': return function(std::int16_t{});
    case 'S': return function(std::uint16_t{});
    case 'i': return function(std::int32_t{});
    case 'I': return function(std::uint32_t{});
    case 'l': return function(std::int64_t{});
    default: break;
  }
  TRIREME_CHECK(type.index_format == "L", "'{}' is not an index format", type.index_format);
  return function(std::uint64_t{});
}

}  // namespace trireme::data
