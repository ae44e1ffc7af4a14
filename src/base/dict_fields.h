#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/value.h"

// Reads fields of events, run files and adapters' messages, which may be incomplete after a crash or from another
// version: a missing field or one of another type yields the fallback, never an error.

namespace trireme::base {

inline std::string text_of(const Dict& dict, std::string_view key, std::string fallback = "") {
  const Value* value = dict.find(key);
  const auto* text = value ? value->get_if<std::string>() : nullptr;
  return text ? *text : fallback;
}

inline std::int64_t int_of(const Dict& dict, std::string_view key, std::int64_t fallback = 0) {
  const Value* value = dict.find(key);
  const auto* number = value ? value->get_if<std::int64_t>() : nullptr;
  return number ? *number : fallback;
}

inline double number_of(const Dict& dict, std::string_view key, double fallback = 0.0) {
  const Value* value = dict.find(key);
  return value && value->is_number() ? value->as_double() : fallback;
}

inline bool flag_of(const Dict& dict, std::string_view key) {
  const Value* value = dict.find(key);
  const auto* flag = value ? value->get_if<bool>() : nullptr;
  return flag && *flag;
}

// nullptr if absent.
inline const Dict* dict_of(const Dict& dict, std::string_view key) {
  const Value* value = dict.find(key);
  return value ? value->get_if<Dict>() : nullptr;
}

}  // namespace trireme::base
