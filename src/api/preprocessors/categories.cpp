#include "api/preprocessors/categories.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "api/preprocessors/dates.h"
#include "api/preprocessors/python_text.h"
#include "api/preprocessors/state_json.h"

namespace trireme::api::preprocessing {
namespace {

template <typename T>
void append_bytes(std::string& key, char kind, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  key += kind;
  key.append(bytes, sizeof(T));
}

void append_text(std::string& key, char kind, std::string_view text) {
  append_bytes(key, kind, text.size());
  key += text;
}

void append_number(std::string& key, double value) {
  // Integers of all types compare equal.
  if (std::trunc(value) == value && std::abs(value) < 0x1p63) append_bytes(key, 'i', static_cast<std::int64_t>(value));
  else append_bytes(key, 'r', value);
}

bool less(const Value& a, const Value& b);

bool less(const List& a, const List& b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](const Value& x, const Value& y) { return less(x, y); });
}

bool less(const Value& a, const Value& b) {
  const auto *whole_a = a.get_if<std::int64_t>(), *whole_b = b.get_if<std::int64_t>();
  if (whole_a && whole_b) return *whole_a < *whole_b;
  if (a.is_number() && b.is_number()) return a.as_double() < b.as_double();
  if (a.variant().index() != b.variant().index()) return a.variant().index() < b.variant().index();
  if (const auto* text = a.get_if<std::string>()) return *text < b.as_string();
  if (const auto* bytes = a.get_if<Bytes>()) return bytes->data < b.as_bytes().data;
  if (const auto* flag = a.get_if<bool>()) return !*flag && b.as_bool();
  if (const auto* list = a.get_if<List>()) return less(*list, b.as_list());
  if (is_date(a) && is_date(b))
    return a.as_dict().begin()->second.as_string() < b.as_dict().begin()->second.as_string();
  return false;
}

const char* type_text(const Value& value) {
  if (is_date(value)) return value.as_dict().begin()->first.c_str() + 1;
  return value.type_name();
}

}  // namespace

void append_key(std::string& key, const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = type.format;
  if (null_at(array, index)) {
    key += 'n';
  } else if (is_text(format)) {
    append_text(key, 's', text_at(type, array, index));
  } else if (is_bytes(format)) {
    append_text(key, 'b', text_at(type, array, index));
  } else if (is_date(format)) {
    append_text(key, 'd', date_at(type, array, index));
  } else if (format == "b") {
    key += whole_at(type, array, index) ? "o1" : "o0";
  } else if (is_list(format)) {
    const Inside inside = list_at(type, array, index);
    append_bytes(key, 'l', inside.count);
    for (std::int64_t i = 0; i < inside.count; ++i) append_key(key, *inside.type, *inside.values, inside.first + i);
  } else if (is_floating(format) || format == "L") {
    append_number(key, number_at(type, array, index));
  } else {
    append_bytes(key, 'i', whole_at(type, array, index));
  }
}

void append_key(std::string& key, const Value& value) {
  if (const auto* text = value.get_if<std::string>()) append_text(key, 's', *text);
  else if (const auto* bytes = value.get_if<Bytes>()) append_text(key, 'b', bytes->data);
  else if (is_date(value)) append_text(key, 'd', value.as_dict().begin()->second.as_string());
  else if (const auto* flag = value.get_if<bool>()) key += *flag ? "o1" : "o0";
  else if (const auto* whole = value.get_if<std::int64_t>()) append_bytes(key, 'i', *whole);
  else if (const auto* number = value.get_if<double>()) append_number(key, *number);
  else if (const auto* list = value.get_if<List>()) {
    append_bytes(key, 'l', static_cast<std::int64_t>(list->size()));
    for (const auto& each : *list) append_key(key, each);
  } else key += 'n';
}

std::int64_t Places::find(std::string_view key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? -1 : found->second;
}

std::int64_t Places::find(const ArrowSchema& type, const ArrowArray& array, std::int64_t index,
                          std::string& key) const {
  key.clear();
  append_key(key, type, array, index);
  return find(key);
}

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
  std::string key;
  for (std::size_t i = 0; i < made.values_.size(); ++i) {
    key.clear();
    append_key(key, made.values_[i]);
    if (!made.places_.add(key, static_cast<std::int64_t>(i)))
      return base::error("duplicate category {}", shown(made.values_[i]));
  }
  return made;
}

base::Result<Categories> Categories::of_numbers(const Value& stats) {
  TRIREME_ASSIGN(auto pairs, decoded_pairs(stats));
  std::vector<Value> values;
  for (auto& [value, number] : pairs) {
    if (number != Value(values.size()))
      return base::error("the category {} has the number {}, expected {}", shown(value), shown(number), values.size());
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
  if (format == "n" || values_.empty()) return {};
  const Value& some = values_.front();
  bool fits = false;
  if (is_text(format)) fits = some.get_if<std::string>();
  if (is_bytes(format)) fits = some.get_if<Bytes>();
  if (format == "b") fits = some.get_if<bool>();
  if (is_date(format)) fits = is_date(some) && some.as_dict().begin()->first == date_kind(format);
  if (is_whole(format) || is_floating(format)) fits = some.is_number();
  if (fits) return {};
  return base::error("{}: column '{}' is {}, but it was fitted to categories such as {} ({})", who, column.name,
                     column.type(), shown(some), type_text(some));
}

base::Result<std::vector<std::int64_t>> Categories::codes(const Column& column, std::string_view who) const {
  if (!is_list(column.format())) TRIREME_TRY(expect_fit(*column.schema, column, who));
  std::vector<std::int64_t> found;
  std::string key;
  for (std::int64_t i = 0; i < column.rows(); ++i) found.push_back(places_.find(*column.schema, *column.array, i, key));
  return found;
}

std::int64_t Categories::code(const Inside& inside, std::int64_t index, std::string& key) const {
  return places_.find(*inside.type, *inside.values, inside.first + index, key);
}

}  // namespace trireme::api::preprocessing
