#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/arrow_c.h"

// Reads Arrow arrays row by row, in the simplest way: the reference for tests.

namespace trireme::tests {

inline bool bit(const void* bits, std::int64_t index) {
  return (static_cast<const unsigned char*>(bits)[index / 8] >> (index % 8) & 1) != 0;
}

template <typename T>
T value_at(const void* buffer, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(buffer) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

inline std::string hex_of(const void* buffer, std::int64_t begin, std::int64_t end) {
  std::string text;
  for (std::int64_t i = begin; i < end; ++i) text += fmt::format("{:02x}", value_at<unsigned char>(buffer, i));
  return text;
}

inline std::int64_t whole_at(char format, const void* buffer, std::int64_t index) {
  switch (format) {
    case 'c': return value_at<std::int8_t>(buffer, index);
    case 'C': return value_at<std::uint8_t>(buffer, index);
    case 's': return value_at<std::int16_t>(buffer, index);
    case 'S': return value_at<std::uint16_t>(buffer, index);
    case 'i': return value_at<std::int32_t>(buffer, index);
    case 'I': return value_at<std::uint32_t>(buffer, index);
    default: return value_at<std::int64_t>(buffer, index);
  }
}

// "null", "true", the bytes of a number, 'text', [1, 2], {1, 2}. Dictionaries are resolved.
inline std::string cell(const ArrowSchema& schema, const ArrowArray& array, std::int64_t row) {
  const std::string_view format = schema.format;
  const std::int64_t at = array.offset + row;
  if (format == "n" || (array.buffers[0] && !bit(array.buffers[0], at))) return "null";
  if (schema.dictionary) return cell(*schema.dictionary, *array.dictionary, whole_at(format[0], array.buffers[1], at));
  const auto items = [&](std::int64_t begin, std::int64_t end) {
    std::string text = "[";
    for (std::int64_t i = begin; i < end; ++i) text += cell(*schema.children[0], *array.children[0], i) + ", ";
    return text + "]";
  };
  const auto offset = [&](std::int64_t index) -> std::int64_t {
    const bool wide = format == "U" || format == "Z" || format == "+L";
    return wide ? value_at<std::int64_t>(array.buffers[1], index) : value_at<std::int32_t>(array.buffers[1], index);
  };
  if (format == "b") return bit(array.buffers[1], at) ? "true" : "false";
  if (format == "u" || format == "U" || format == "z" || format == "Z") {
    const auto* text = static_cast<const char*>(array.buffers[2]);
    return "'" + std::string(text + offset(at), text + offset(at + 1)) + "'";
  }
  if (format == "+l" || format == "+L" || format == "+m") return items(offset(at), offset(at + 1));
  if (format.starts_with("+w:")) {
    const std::int64_t length = std::stoll(std::string(format.substr(3)));
    return items(at * length, (at + 1) * length);
  }
  if (format == "+s") {
    std::string text = "{";
    for (std::int64_t i = 0; i < schema.n_children; ++i) {
      text += cell(*schema.children[i], *array.children[i], at) + ", ";
    }
    return text + "}";
  }
  std::int64_t width = 8;
  if (format == "c" || format == "C") width = 1;
  if (format == "s" || format == "S" || format == "e") width = 2;
  if (format == "i" || format == "I" || format == "f" || format == "tdD") width = 4;
  if (format == "tin" || format.starts_with("d:")) width = 16;
  if (format.starts_with("w:")) width = std::stoll(std::string(format.substr(2)));
  return hex_of(array.buffers[1], at * width, (at + 1) * width);
}

inline std::int64_t count_nulls(const ArrowArray& array) {
  std::int64_t nulls = 0;
  for (std::int64_t i = 0; array.buffers[0] && i < array.length; ++i) {
    nulls += bit(array.buffers[0], array.offset + i) ? 0 : 1;
  }
  return nulls;
}

}  // namespace trireme::tests
