#include "data/metadata.h"

#include <cstdint>
#include <cstring>

namespace trireme::data {
namespace {

// Arrow's encoding: the number of pairs, then the length and bytes of each key and value.
class Reader {
 public:
  explicit Reader(const char* at) : at_(at) {}

  std::optional<std::int32_t> number() {
    std::int32_t value = 0;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    if (value < 0) return std::nullopt;
    return value;
  }

  std::optional<std::string_view> text() {
    const auto size = number();
    if (!size) return std::nullopt;
    const std::string_view read(at_, static_cast<std::size_t>(*size));
    at_ += *size;
    return read;
  }

  const char* at() const { return at_; }

 private:
  const char* at_;
};

}  // namespace

std::string_view metadata_bytes(const char* metadata) {
  if (!metadata) return {};
  Reader reader(metadata);
  const auto pairs = reader.number();
  if (!pairs) return {};
  for (std::int32_t i = 0; i < *pairs; ++i) {
    if (!reader.text() || !reader.text()) return {};
  }
  return {metadata, static_cast<std::size_t>(reader.at() - metadata)};
}

std::optional<std::string_view> find_metadata(const char* metadata, std::string_view key) {
  if (!metadata) return std::nullopt;
  Reader reader(metadata);
  const auto pairs = reader.number();
  for (std::int32_t i = 0; pairs && i < *pairs; ++i) {
    const auto name = reader.text();
    const auto value = name ? reader.text() : std::nullopt;
    if (!value) return std::nullopt;
    if (*name == key) return value;
  }
  return std::nullopt;
}

}  // namespace trireme::data
