#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/crc32c.h"

// TFRecord files and examples in them, byte by byte.

namespace trireme::test {

template <typename T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string masked(std::string_view bytes) {
  const std::uint32_t crc = formats::crc32c(bytes);
  return little_endian<std::uint32_t>((crc >> 15 | crc << 17) + 0xA282EAD8U);
}

inline std::string framed(const std::vector<std::string>& records) {
  std::string file;
  for (const auto& record : records) {
    const std::string length = little_endian<std::uint64_t>(record.size());
    file += length + masked(length) + record + masked(record);
  }
  return file;
}

inline std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

inline std::string field(std::uint64_t number, std::string_view content) {
  return varint(number << 3 | 2) + varint(content.size()) + std::string(content);
}

inline std::string texts(const std::vector<std::string>& values) {
  std::string list;
  for (const auto& value : values) list += field(1, value);
  return field(1, list);
}

inline std::string floats(const std::vector<float>& values) {
  std::string packed;
  for (const float value : values) packed += little_endian(value);
  return field(2, field(1, packed));
}

inline std::string ints(const std::vector<std::int64_t>& values) {
  std::string packed;
  for (const auto value : values) packed += varint(static_cast<std::uint64_t>(value));
  return field(3, field(1, packed));
}

// Features as texts(), floats() and ints() make them; "": one without values.
inline std::string example(const std::vector<std::pair<std::string, std::string>>& features) {
  std::string entries;
  for (const auto& [name, feature] : features) entries += field(1, field(1, name) + field(2, feature));
  return field(1, entries);
}

}  // namespace trireme::test
