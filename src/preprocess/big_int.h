#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

#include "trireme/value.h"

// Integers above the range of int64, from columns of uint64: {"$int": "18446744073709551615"} in the JSON.

namespace trireme::preprocess {

inline Value big_int_value(std::uint64_t number) { return Dict{{"$int", std::to_string(number)}}; }

inline std::optional<std::uint64_t> parse_big_int(const Value& value) {
  const auto* dict = value.get_if<Dict>();
  if (!dict || dict->size() != 1 || dict->begin()->first != "$int") return std::nullopt;
  const auto* text = dict->begin()->second.get_if<std::string>();
  std::uint64_t number = 0;
  if (!text) return std::nullopt;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (failure != std::errc{} || end != text->data() + text->size() || number >> 63 == 0) return std::nullopt;
  return number;
}

}  // namespace trireme::preprocess
