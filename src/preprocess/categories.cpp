#include "preprocess/categories.h"

#include <algorithm>
#include <numeric>

#include "data/unaligned.h"
#include "preprocess/big_int.h"
#include "preprocess/decimals.h"
#include "preprocess/python_text.h"
#include "preprocess/state_json.h"
#include "preprocess/temporal.h"

namespace trireme::preprocess {
namespace {

bool less(const Value& a, const Value& b);

bool less(const List& a, const List& b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](const Value& x, const Value& y) { return less(x, y); });
}

// Values that JSON writes as a dict with a tag.
bool less_tagged(const Value& a, const Value& b) {
  if (const auto here = parse_temporal(a), there = parse_temporal(b); here && there) return *here < *there;
  if (const auto here = decimal_of(a), there = decimal_of(b); here && there) return *here < *there;
  const auto here = parse_big_int(a), there = parse_big_int(b);
  return here && there && *here < *there;
}

bool less(const Value& a, const Value& b) {
  const auto *whole_a = a.get_if<std::int64_t>(), *whole_b = b.get_if<std::int64_t>();
  if (whole_a && whole_b) return *whole_a < *whole_b;
  if (a.is_number() && b.is_number()) return a.as_double() < b.as_double();
  // Integers above the range of int64 are dicts, which come after all numbers.
  if (a.variant().index() != b.variant().index()) return a.variant().index() < b.variant().index();
  if (const auto* text = a.get_if<std::string>()) return *text < b.as_string();
  if (const auto* bytes = a.get_if<Bytes>()) return bytes->data < b.as_bytes().data;
  if (const auto* flag = a.get_if<bool>()) return !*flag && b.as_bool();
  if (const auto* list = a.get_if<List>()) return less(*list, b.as_list());
  return less_tagged(a, b);
}

// "str", "int": Python's name.
std::string_view type_text(const Value& value) {
  if (value.get_if<std::string>()) return "str";
  if (const auto* dict = value.get_if<Dict>(); dict && !dict->empty())
    return std::string_view(dict->begin()->first).substr(1);
  return value.type_name();
}

bool fits(std::string_view format, const Value& value) {
  if (is_text(format)) return value.get_if<std::string>();
  if (is_bytes(format)) return value.get_if<Bytes>();
  if (format == "b") return value.get_if<bool>();
  if (is_number(format)) return value.is_number() || parse_big_int(value);
  if (is_decimal(format)) return decimal_of(value).has_value();
  const auto temporal = parse_temporal(value);
  return temporal && temporal_kind(format) == temporal->kind;
}

// The common case, without a look at the type of each value.
template <typename Offset>
void find_texts(const ArrowArray& array, const Places& places, std::vector<std::int64_t>& found) {
  const auto* bytes = static_cast<const char*>(array.buffers[2]);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t row = array.offset + static_cast<std::int64_t>(i);
    const Offset begin = data::load<Offset>(array.buffers[1], row);
    const Offset end = data::load<Offset>(array.buffers[1], row + 1);
    found[i] = places.find(begin == end ? std::string_view()
                                        : std::string_view(bytes + begin, static_cast<std::size_t>(end - begin)));
  }
}

}  // namespace

std::vector<Value> numbered(const Counted& counted, std::optional<std::int64_t> most) {
  std::vector<std::size_t> order(counted.values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (most) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return counted.counts[a] > counted.counts[b]; });
    order.resize(std::min(order.size(), static_cast<std::size_t>(*most)));
  }
  std::vector<Value> values;
  for (const std::size_t i : order) values.push_back(counted.values[i]);
  std::sort(values.begin(), values.end(), [](const Value& a, const Value& b) { return less(a, b); });
  return values;
}

base::Result<Categories> Categories::of(std::vector<Value> values) {
  Categories made;
  made.values_ = std::move(values);
  for (std::size_t i = 0; i < made.values_.size(); ++i) {
    if (!made.places_.add(made.values_[i], static_cast<std::int64_t>(i)))
      return base::error("duplicate category {}", python_text(made.values_[i]));
  }
  return made;
}

base::Result<Categories> Categories::of_numbers(const Value& stats) {
  TRIREME_ASSIGN(auto pairs, decoded_pairs(stats));
  std::vector<Value> values;
  for (auto& [value, number] : pairs) {
    if (number != Value(values.size()))
      return base::error("the category {} has the number {}, expected {}", python_text(value), python_text(number),
                         values.size());
    values.push_back(std::move(value));
  }
  return of(std::move(values));
}

Value Categories::numbers() const {
  Pairs pairs;
  for (std::size_t i = 0; i < values_.size(); ++i) pairs.emplace_back(values_[i], i);
  return encoded_pairs(std::move(pairs));
}

base::Result<void> Categories::expect_fit(const ArrowSchema& type, const Column& column, std::string_view who) const {
  const std::string_view format = type.format;
  if (format == "n" || is_list(format) || values_.empty() || fits(format, values_.front())) return {};
  return base::error("{}: column '{}' is {}, but it was fitted to categories such as {} ({})", who, column.name,
                     column.type(), python_text(values_.front()), type_text(values_.front()));
}

base::Result<std::vector<std::int64_t>> Categories::codes(const Column& column, std::string_view who) const {
  TRIREME_TRY(expect_fit(*column.schema, column, who));
  std::vector<std::int64_t> found(static_cast<std::size_t>(column.rows()));
  if (is_text(column.format()) && !any_null(*column.array, 0, column.rows())) {
    if (column.format() == "u") find_texts<std::int32_t>(*column.array, places_, found);
    else find_texts<std::int64_t>(*column.array, places_, found);
    return found;
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    found[i] = places_.find(*column.schema, *column.array, static_cast<std::int64_t>(i));
  return found;
}

std::int64_t Categories::code(const Inside& inside, std::int64_t index) const {
  return places_.find(*inside.type, *inside.values, inside.first + index);
}

}  // namespace trireme::preprocess
