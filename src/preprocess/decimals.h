#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/arrow_c.h"
#include "trireme/value.h"

// Decimal numbers of columns, exactly: {"$decimal": "1.50"} in the JSON.

namespace trireme::preprocess {

bool is_decimal(std::string_view format);

// (-1)^negative * digits * 10^exponent, in normal form: no zeros at either end of the digits, none for zero.
struct Decimal {
  bool negative = false;
  std::string digits;
  int exponent = 0;

  bool operator==(const Decimal&) const = default;
};
bool operator<(const Decimal& a, const Decimal& b);

// "1.50" or "1.5E+3", as Python writes them.
std::optional<Decimal> parse_decimal(std::string_view text);
// The content of {"$decimal": "1.50"}; nothing for other values.
std::optional<Decimal> decimal_of(const Value& value);
Decimal decimal_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
// With all digits of the column's scale, for example "1.50".
std::string decimal_text(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
double decimal_number(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
// Writes the value in a column of that format; false if it does not fit.
bool store_decimal(std::string_view format, const Decimal& value, std::byte* to);
std::int64_t decimal_width(std::string_view format);

}  // namespace trireme::preprocess
