#include "preprocess/decimals.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

namespace trireme::preprocess {
namespace {

constexpr std::int64_t kMostBytes = 32;
constexpr std::uint32_t kSign = 0x80000000;

using Limbs = std::array<std::uint32_t, kMostBytes / 4>;  // of base 2^32, from the smallest on

void negate(Limbs& limbs, std::size_t count) {
  std::uint64_t carry = 1;
  for (std::size_t i = 0; i < count; ++i) {
    carry += static_cast<std::uint32_t>(~limbs[i]);
    limbs[i] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
}

struct Shape {
  int scale = 0;
  std::int64_t bytes = 16;
};

// "d:10,2" has 128 bits, "d:10,2,64" 64.
Shape shape_of(std::string_view format) {
  Shape shape;
  const auto first = format.find(',');
  const auto second = format.find(',', first + 1);
  const auto number = [&](std::size_t from, auto& out) {
    std::from_chars(format.data() + from, format.data() + format.size(), out);
  };
  if (first != std::string_view::npos) number(first + 1, shape.scale);
  if (second != std::string_view::npos) {
    number(second + 1, shape.bytes);
    shape.bytes /= 8;
  }
  shape.bytes = std::clamp<std::int64_t>(shape.bytes, 4, kMostBytes);
  return shape;
}

// The size of the stored integer, and its sign.
struct Stored {
  bool negative = false;
  Limbs limbs{};
};

Stored stored_at(const Shape& shape, const ArrowArray& array, std::int64_t index) {
  Stored stored;
  const auto* at = static_cast<const std::byte*>(array.buffers[1]) + (index + array.offset) * shape.bytes;
  const auto count = static_cast<std::size_t>(shape.bytes) / 4;
  std::memcpy(stored.limbs.data(), at, count * 4);
  stored.negative = (stored.limbs[count - 1] & kSign) != 0;
  if (stored.negative) negate(stored.limbs, count);
  return stored;
}

std::string digits_of(Stored stored) {
  std::string digits;
  while (std::any_of(stored.limbs.begin(), stored.limbs.end(), [](auto limb) { return limb != 0; })) {
    std::uint64_t rest = 0;
    for (auto limb = stored.limbs.rbegin(); limb != stored.limbs.rend(); ++limb) {
      rest = rest << 32 | *limb;
      *limb = static_cast<std::uint32_t>(rest / 1000000000);
      rest %= 1000000000;
    }
    for (int i = 0; i < 9; ++i, rest /= 10) digits += static_cast<char>('0' + rest % 10);
  }
  while (digits.ends_with('0')) digits.pop_back();
  std::reverse(digits.begin(), digits.end());
  return digits;
}

Decimal normal(bool negative, std::string digits, int exponent) {
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  while (digits.ends_with('0')) {
    digits.pop_back();
    ++exponent;
  }
  if (digits.empty()) return {};
  return {negative, std::move(digits), exponent};
}

}  // namespace

bool is_decimal(std::string_view format) { return format.starts_with("d:"); }

std::int64_t decimal_width(std::string_view format) { return shape_of(format).bytes; }

bool operator<(const Decimal& a, const Decimal& b) {
  const auto sign = [](const Decimal& value) { return value.digits.empty() ? 0 : value.negative ? -1 : 1; };
  if (sign(a) != sign(b)) return sign(a) < sign(b);
  if (a.negative) {
    const Decimal positive_a{false, a.digits, a.exponent};
    const Decimal positive_b{false, b.digits, b.exponent};
    return positive_b < positive_a;
  }
  const auto top = [](const Decimal& value) { return static_cast<std::int64_t>(value.digits.size()) + value.exponent; };
  if (top(a) != top(b)) return top(a) < top(b);
  return a.digits < b.digits;  // without zeros at the end, a shorter one is smaller
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  constexpr int kMostExponent = 1000;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int exponent = 0;
  if (const auto e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view number = text.substr(e + 1);
    if (number.starts_with('+')) number.remove_prefix(1);
    const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), exponent);
    if (failure != std::errc{} || end != number.data() + number.size() || std::abs(exponent) > kMostExponent)
      return std::nullopt;
    text = text.substr(0, e);
  }
  std::string digits(text);
  if (const auto point = text.find('.'); point != std::string_view::npos) {
    digits.erase(point, 1);
    exponent -= static_cast<int>(digits.size() - point);
  }
  const bool numeric = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
  if (!numeric || digits.size() > static_cast<std::size_t>(kMostExponent)) return std::nullopt;
  return normal(negative, std::move(digits), exponent);
}

std::optional<Decimal> decimal_of(const Value& value) {
  const auto* dict = value.get_if<Dict>();
  if (!dict || dict->size() != 1 || dict->begin()->first != "$decimal") return std::nullopt;
  const auto* text = dict->begin()->second.get_if<std::string>();
  return text ? parse_decimal(*text) : std::nullopt;
}

Decimal decimal_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const Shape shape = shape_of(type.format);
  const Stored stored = stored_at(shape, array, index);
  return normal(stored.negative, digits_of(stored), -shape.scale);
}

std::string decimal_text(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const Shape shape = shape_of(type.format);
  const Stored stored = stored_at(shape, array, index);
  std::string digits = digits_of(stored);
  const std::string sign = stored.negative ? "-" : "";
  if (shape.scale <= 0)
    return sign + (digits.empty() ? "0" : digits + std::string(static_cast<std::size_t>(-shape.scale), '0'));
  const auto places = static_cast<std::size_t>(shape.scale);
  if (digits.size() <= places) digits.insert(0, places + 1 - digits.size(), '0');
  digits.insert(digits.size() - places, ".");
  return sign + digits;
}

double decimal_number(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const Shape shape = shape_of(type.format);
  const Stored stored = stored_at(shape, array, index);
  long double size = 0;
  for (auto limb = stored.limbs.rbegin(); limb != stored.limbs.rend(); ++limb) size = size * 0x1p32L + *limb;
  return static_cast<double>((stored.negative ? -size : size) / std::pow(10.0L, shape.scale));
}

bool store_decimal(std::string_view format, const Decimal& value, std::byte* to) {
  const Shape shape = shape_of(format);
  const auto count = static_cast<std::size_t>(shape.bytes) / 4;
  const int zeros = value.exponent + shape.scale;
  if (!value.digits.empty() && (zeros < 0 || zeros > 100)) return false;
  std::string digits = value.digits;
  if (!digits.empty()) digits.append(static_cast<std::size_t>(zeros), '0');
  Limbs limbs{};
  for (const char digit : digits) {
    std::uint64_t carry = static_cast<std::uint64_t>(digit - '0');
    for (std::size_t i = 0; i < count; ++i) {
      carry += std::uint64_t{limbs[i]} * 10;
      limbs[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0 || (limbs[count - 1] & kSign) != 0) return false;
  }
  if (value.negative) negate(limbs, count);
  std::memcpy(to, limbs.data(), count * 4);
  return true;
}

}  // namespace trireme::preprocess
