#include <cmath>
#include <cstring>

#include "preprocess/big_int.h"
#include "preprocess/categories.h"
#include "preprocess/decimals.h"
#include "preprocess/temporal.h"

// The lookup of values. Texts and integers, the common categories, need no encoding; other values are encoded as bytes
// that are equal if the values are equal.

namespace trireme::preprocess {
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

void append_unsigned(std::string& key, std::uint64_t value) { append_bytes(key, value >> 63 == 0 ? 'i' : 'u', value); }

std::optional<std::int64_t> whole_of(double value) {
  if (std::trunc(value) != value || std::abs(value) >= 0x1p63) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

void append_number(std::string& key, double value) {
  // Integers of all types compare equal.
  if (const auto whole = whole_of(value)) append_bytes(key, 'i', *whole);
  else append_bytes(key, 'r', value);
}

void append_temporal(std::string& key, const Temporal& temporal) {
  append_bytes(key, 't', temporal.kind);
  append_bytes(key, ':', temporal.seconds);
  append_bytes(key, '.', temporal.nanos);
}

void append_decimal(std::string& key, const Decimal& decimal) {
  append_bytes(key, decimal.negative ? '-' : '+', decimal.exponent);
  append_text(key, 'd', decimal.digits);
}

void append_key(std::string& key, const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = type.format;
  if (null_at(array, index)) {
    key += 'n';
  } else if (is_text(format)) {
    append_text(key, 's', text_at(type, array, index));
  } else if (is_bytes(format)) {
    append_text(key, 'b', text_at(type, array, index));
  } else if (temporal_kind(format)) {
    append_temporal(key, temporal_at(type, array, index));
  } else if (is_decimal(format)) {
    append_decimal(key, decimal_at(type, array, index));
  } else if (format == "b") {
    key += whole_at(type, array, index) ? "o1" : "o0";
  } else if (is_list(format)) {
    const Inside inside = list_at(type, array, index);
    append_bytes(key, 'l', inside.count);
    for (std::int64_t i = 0; i < inside.count; ++i) append_key(key, *inside.type, *inside.values, inside.first + i);
  } else if (is_floating(format)) {
    append_number(key, number_at(type, array, index));
  } else if (format == "L") {
    append_unsigned(key, static_cast<std::uint64_t>(whole_at(type, array, index)));
  } else {
    append_bytes(key, 'i', whole_at(type, array, index));
  }
}

void append_key(std::string& key, const Value& value) {
  if (const auto* text = value.get_if<std::string>()) append_text(key, 's', *text);
  else if (const auto* bytes = value.get_if<Bytes>()) append_text(key, 'b', bytes->data);
  else if (const auto* flag = value.get_if<bool>()) key += *flag ? "o1" : "o0";
  else if (const auto* whole = value.get_if<std::int64_t>()) append_bytes(key, 'i', *whole);
  else if (const auto* number = value.get_if<double>()) append_number(key, *number);
  else if (const auto* list = value.get_if<List>()) {
    append_bytes(key, 'l', static_cast<std::int64_t>(list->size()));
    for (const auto& each : *list) append_key(key, each);
  } else if (const auto temporal = parse_temporal(value)) append_temporal(key, *temporal);
  else if (const auto decimal = decimal_of(value)) append_decimal(key, *decimal);
  else if (const auto big = parse_big_int(value)) append_unsigned(key, *big);
  else key += 'n';
}

// Numbers that are integers of 64 bits.
std::optional<std::int64_t> whole_in(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = type.format;
  if (is_floating(format)) return whole_of(number_at(type, array, index));
  if (!is_whole(format)) return std::nullopt;
  const std::int64_t whole = whole_at(type, array, index);
  return format == "L" && whole < 0 ? std::nullopt : std::optional(whole);
}

// One for each thread: a lookup must not allocate.
std::string& scratch() {
  thread_local std::string key;
  key.clear();
  return key;
}

}  // namespace

std::int64_t Places::find(std::string_view text) const { return texts_.find(text); }

std::int64_t Places::find(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) const {
  if (!null_at(array, index)) {
    if (is_text(type.format)) return find(text_at(type, array, index));
    if (const auto whole = whole_in(type, array, index)) return wholes_.find(*whole);
  }
  std::string& key = scratch();
  append_key(key, type, array, index);
  return others_.find(key);
}

bool Places::add(std::string_view text, std::int64_t place) { return texts_.add(text, place); }

bool Places::add(const ArrowSchema& type, const ArrowArray& array, std::int64_t index, std::int64_t place) {
  if (!null_at(array, index)) {
    if (is_text(type.format)) return add(text_at(type, array, index), place);
    if (const auto whole = whole_in(type, array, index)) return wholes_.add(*whole, place);
  }
  std::string& key = scratch();
  append_key(key, type, array, index);
  return others_.add(key, place);
}

bool Places::add(const Value& value, std::int64_t place) {
  if (const auto* text = value.get_if<std::string>()) return add(std::string_view(*text), place);
  if (const auto* whole = value.get_if<std::int64_t>()) return wholes_.add(*whole, place);
  if (const auto* number = value.get_if<double>()) {
    if (const auto whole = whole_of(*number)) return wholes_.add(*whole, place);
  }
  std::string& key = scratch();
  append_key(key, value);
  return others_.add(key, place);
}

}  // namespace trireme::preprocess
