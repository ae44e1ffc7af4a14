#include "formats/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

namespace trireme::formats {

namespace {

constexpr std::size_t kBlock = 512;
constexpr std::uint64_t kPart = std::uint64_t{1} << 20;
// Larger values do not fit into a column, and a compressed file may unpack to any size.
constexpr std::uint64_t kLargestContent = (std::uint64_t{1} << 31) - 1;
constexpr std::uint64_t kLongestName = std::uint64_t{1} << 20;  // of pax and GNU headers before a member

std::string_view text_in(std::string_view field) { return field.substr(0, field.find('\0')); }

std::optional<std::uint64_t> number_in(std::string_view field) {
  // Values that do not fit into octal digits: the first bit is set, the rest is a big-endian number.
  if ((static_cast<unsigned char>(field[0]) & 0x80) != 0) {
    std::uint64_t value = static_cast<unsigned char>(field[0]) & 0x7F;
    for (const char byte : field.substr(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(byte);
    }
    return value;
  }
  std::string_view digits = text_in(field);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  if (digits.empty()) return 0;
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (failed != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

bool checksum_matches(std::string_view block) {
  constexpr std::size_t kAt = 148;
  constexpr std::size_t kSize = 8;
  const auto stored = number_in(block.substr(kAt, kSize));
  std::uint64_t sum = kSize * ' ';
  std::int64_t signed_sum = kSize * ' ';  // some old writers summed signed bytes
  for (std::size_t i = 0; i < kBlock; ++i) {
    if (i >= kAt && i < kAt + kSize) continue;
    sum += static_cast<unsigned char>(block[i]);
    signed_sum += static_cast<signed char>(block[i]);
  }
  return stored && (*stored == sum || static_cast<std::int64_t>(*stored) == signed_sum);
}

struct Extended {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
  bool sparse = false;
};

// Records such as "27 path=some/long/name
// ".
bool parse_pax(std::string_view records, Extended& extended) {
  while (!records.empty() && records.front() != '\0') {
    std::size_t length = 0;
    const auto [after, failed] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<std::size_t>(after - records.data());
    if (failed != std::errc() || length > records.size() || length < digits + 3) return false;
    std::string_view record = records.substr(digits, length - digits);
    if (record.front() != ' ' || record.back() != '\n') return false;
    record = record.substr(1, record.size() - 2);
    const std::size_t equal = record.find('=');
    if (equal == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equal);
    const std::string_view value = record.substr(equal + 1);
    if (key.starts_with("GNU.sparse.")) extended.sparse = true;
    if (key == "path") extended.name = std::string(value);
    if (key == "size") {
      std::uint64_t size = 0;
      const auto [end, bad] = std::from_chars(value.data(), value.data() + value.size(), size);
      if (bad != std::errc() || end != value.data() + value.size()) return false;
      extended.size = size;
    }
    records.remove_prefix(length);
  }
  return true;
}

}  // namespace

struct TarReader::Header {
  std::string name;
  std::uint64_t size = 0;
  char type = '0';
};

base::Result<std::string> TarReader::take(std::uint64_t bytes) {
  std::string taken;
  // In small parts: an invalid length must not allocate more memory than there are bytes.
  while (taken.size() < bytes) {
    const std::size_t before = taken.size();
    const auto part = static_cast<std::size_t>(std::min(bytes - before, kPart));
    taken.resize(before + part);
    TRIREME_ASSIGN(const auto count, read_(taken.data() + before, part));
    if (count < part) return base::error("it is truncated");
  }
  return taken;
}

base::Result<void> TarReader::skip(std::uint64_t bytes) {
  std::array<char, 16384> dropped;
  while (bytes > 0) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, dropped.size()));
    TRIREME_ASSIGN(const auto count, read_(dropped.data(), part));
    if (count < part) return base::error("it is truncated");
    bytes -= part;
  }
  return {};
}

// False at the end: zero blocks, or end of file.
base::Result<bool> TarReader::read_header(Header& header) {
  std::array<char, kBlock> block;
  TRIREME_ASSIGN(const auto count, read_(block.data(), kBlock));
  if (count == 0 && empty_) return base::error("it is empty");
  if (count == 0) return false;
  empty_ = false;
  if (count < kBlock) return base::error("it is truncated");
  if (std::all_of(block.begin(), block.end(), [](char byte) { return byte == '\0'; })) return false;
  const std::string_view whole(block.data(), kBlock);
  if (!checksum_matches(whole)) return base::error("a header is corrupt");
  const auto size = number_in(whole.substr(124, 12));
  if (!size || *size > std::uint64_t{1} << 62) return base::error("a header has an invalid size");
  header.name = text_in(whole.substr(0, 100));
  header.size = *size;
  header.type = block[156];
  const std::string_view prefix = text_in(whole.substr(345, 155));
  if (whole.substr(257, 6) == std::string_view("ustar\0", 6) && !prefix.empty()) {
    header.name = std::string(prefix) + "/" + header.name;
  }
  left_ = header.size;
  padding_ = (kBlock - header.size % kBlock) % kBlock;
  return true;
}

base::Result<std::optional<TarReader::Member>> TarReader::next() {
  Extended extended;
  while (true) {
    TRIREME_TRY(skip(left_ + padding_));
    left_ = padding_ = 0;
    Header header;
    TRIREME_ASSIGN(const bool there, read_header(header));
    if (!there) return std::optional<Member>();
    if (header.type == 'x' || header.type == 'L') {
      if (header.size > kLongestName) return base::error("a header is corrupt: a name has {} bytes", header.size);
      TRIREME_ASSIGN(auto before, content());
      if (header.type == 'L') extended.name = std::string(text_in(before));
      if (header.type == 'x' && !parse_pax(before, extended)) return base::error("a pax header is corrupt");
      continue;
    }
    if (header.type == 'g' || header.type == 'K') continue;  // global headers; long link targets
    if (header.type == 'S' || extended.sparse)
      return base::error("{} is a sparse file, which is not supported", header.name);
    Member member{std::move(header.name), header.size, header.type == '0' || header.type == '\0' || header.type == '7'};
    if (extended.name) member.name = *std::move(extended.name);
    if (extended.size) {
      if (*extended.size > std::uint64_t{1} << 62) return base::error("a header has an invalid size");
      member.size = left_ = *extended.size;
      padding_ = (kBlock - member.size % kBlock) % kBlock;
    }
    // Links and folders have no content, even if their header has a size.
    if (header.type >= '1' && header.type <= '6') member.size = left_ = padding_ = 0;
    if (member.name.ends_with('/')) member.file = false;
    return std::optional(std::move(member));
  }
}

base::Result<std::string> TarReader::content() {
  if (left_ > kLargestContent) {
    return base::error("a member has {} bytes, more than the limit of {}", left_, kLargestContent);
  }
  TRIREME_ASSIGN(auto taken, take(left_));
  left_ = 0;
  return taken;
}

base::Result<void> TarReader::content(char* out) {
  TRIREME_ASSIGN(const auto count, read_(out, static_cast<std::size_t>(left_)));
  if (count < left_) return base::error("it is truncated");
  left_ = 0;
  return {};
}

}  // namespace trireme::formats
