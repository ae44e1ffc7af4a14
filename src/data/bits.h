#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

// Arrow bitmaps: the least significant bit of a byte comes first.

namespace trireme::data {

inline bool bit_at(const std::byte* bits, std::int64_t index) {
  return (bits[index >> 3] >> (index & 7) & std::byte{1}) != std::byte{0};
}

inline void or_bit(std::byte* bits, std::int64_t index, bool value) {
  bits[index >> 3] |= static_cast<std::byte>(static_cast<unsigned>(value) << (index & 7));
}

// The target bits must be zero.
inline void copy_bits(const std::byte* from, std::int64_t from_index, std::byte* to, std::int64_t to_index,
                      std::int64_t count) {
  for (; count > 0 && (to_index & 7) != 0; --count) or_bit(to, to_index++, bit_at(from, from_index++));
  const std::byte* source = from + (from_index >> 3);
  std::byte* target = to + (to_index >> 3);
  const std::int64_t whole = count >> 3;
  if (const int shift = from_index & 7; shift == 0) {
    if (whole > 0) std::memcpy(target, source, static_cast<std::size_t>(whole));
  } else {
    for (std::int64_t i = 0; i < whole; ++i) target[i] = source[i] >> shift | source[i + 1] << (8 - shift);
  }
  for (std::int64_t i = whole << 3; i < count; ++i) or_bit(to, to_index + i, bit_at(from, from_index + i));
}

// The target bits must be zero.
inline void set_bits(std::byte* to, std::int64_t index, std::int64_t count) {
  for (; count > 0 && (index & 7) != 0; --count) or_bit(to, index++, true);
  if (count >= 8) std::memset(to + (index >> 3), 0xFF, static_cast<std::size_t>(count >> 3));
  for (std::int64_t i = count & ~std::int64_t{7}; i < count; ++i) or_bit(to, index + i, true);
}

inline std::int64_t count_bits(const std::byte* bits, std::int64_t index, std::int64_t count) {
  std::int64_t set = 0;
  for (; count > 0 && (index & 7) != 0; --count) set += bit_at(bits, index++) ? 1 : 0;
  const std::byte* at = bits + (index >> 3);
  for (; count >= 64; count -= 64, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    set += std::popcount(word);
  }
  for (std::int64_t i = 0; i < count; ++i) set += bit_at(at, i) ? 1 : 0;
  return set;
}

}  // namespace trireme::data
