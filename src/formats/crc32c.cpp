#include "formats/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace trireme::formats {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;
constexpr std::size_t kWord = sizeof(std::uint64_t);

using Tables = std::array<std::array<std::uint32_t, 256>, kWord>;

// Table t has the effect of a byte on the state when t bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? kPolynomial : 0);
    tables[0][byte] = state;
  }
  for (std::size_t t = 1; t < kWord; ++t) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[t - 1][byte];
      tables[t][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

std::uint32_t with_tables(std::uint32_t state, std::string_view bytes) {
  if constexpr (std::endian::native == std::endian::little) {
    for (; bytes.size() >= kWord; bytes.remove_prefix(kWord)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), kWord);
      word ^= state;
      state = 0;
      for (std::size_t i = 0; i < kWord; ++i) state ^= kTables[kWord - 1 - i][word >> (8 * i) & 0xFF];
    }
  }
  for (const char byte : bytes) state = state >> 8 ^ kTables[0][(state ^ static_cast<std::uint8_t>(byte)) & 0xFF];
  return state;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) std::uint32_t with_instruction(std::uint32_t state, std::string_view bytes) {
  std::uint64_t wide = state;
  for (; bytes.size() >= kWord; bytes.remove_prefix(kWord)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), kWord);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  state = static_cast<std::uint32_t>(wide);
  for (const char byte : bytes) state = __builtin_ia32_crc32qi(state, static_cast<std::uint8_t>(byte));
  return state;
}
#endif

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~with_instruction(0xFFFFFFFF, bytes);
#endif
  return ~with_tables(0xFFFFFFFF, bytes);
}

}  // namespace trireme::formats
