#include "boosting/decimal_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>

namespace trireme::boosting {
namespace {

constexpr std::size_t kMostLimbs = 8;  // of 32 bits
constexpr std::uint32_t kDigits = 1'000'000'000;

using Limbs = std::array<std::uint32_t, kMostLimbs>;  // from the lowest on

void negate(Limbs& limbs, std::size_t count) {
  std::uint64_t carry = 1;
  for (std::size_t each = 0; each < count; ++each) {
    carry += static_cast<std::uint32_t>(~limbs[each]);
    limbs[each] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
}

// Returns the remainder.
std::uint32_t divide(Limbs& limbs, std::uint32_t divisor) {
  std::uint64_t rest = 0;
  for (auto limb = limbs.rbegin(); limb != limbs.rend(); ++limb) {
    rest = rest << 32 | *limb;
    *limb = static_cast<std::uint32_t>(rest / divisor);
    rest %= divisor;
  }
  return static_cast<std::uint32_t>(rest);
}

}  // namespace

DecimalReader::DecimalReader(std::string_view format) {
  const char* const end = format.data() + format.size();
  const std::size_t scale = format.find(',') + 1;
  const char* const bits = std::from_chars(format.data() + scale, end, scale_).ptr;
  if (bits == end) return;
  std::from_chars(bits + 1, end, bytes_);
  bytes_ = std::min(bytes_ / 8, kMostLimbs * sizeof(std::uint32_t));
}

double DecimalReader::read(const void* values, std::int64_t at) const {
  Limbs limbs{};
  std::memcpy(limbs.data(), static_cast<const std::byte*>(values) + static_cast<std::size_t>(at) * bytes_, bytes_);
  const std::size_t count = bytes_ / sizeof(std::uint32_t);
  const bool negative = (limbs[count - 1] >> 31) != 0;
  if (negative) negate(limbs, count);
  std::string digits;  // from the lowest on
  while (std::any_of(limbs.begin(), limbs.end(), [](std::uint32_t limb) { return limb != 0; })) {
    std::uint32_t nine = divide(limbs, kDigits);
    for (int each = 0; each < 9; ++each, nine /= 10) digits += static_cast<char>('0' + nine % 10);
  }
  if (digits.empty()) return 0;
  std::string text = negative ? "-" : "";
  text.append(digits.rbegin(), digits.rend());
  text += "e" + std::to_string(-scale_);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace trireme::boosting
