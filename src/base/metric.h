#pragma once

#include <cmath>
#include <optional>
#include <string_view>

#include "trireme/value.h"

namespace trireme::base {

// The number with this name; "a/b" selects a nested metric unless a key has exactly that name. nullopt if there is none
// or it is NaN: neither may rank best.
inline std::optional<double> find_metric(const Metrics& metrics, std::string_view name) {
  if (const Value* value = metrics.find(name); value && value->is_number()) {
    const double number = value->as_double();
    return std::isnan(number) ? std::nullopt : std::optional(number);
  }
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const Value* inner = metrics.find(name.substr(0, slash));
  const Dict* dict = inner ? inner->get_if<Dict>() : nullptr;
  return dict ? find_metric(*dict, name.substr(slash + 1)) : std::nullopt;
}

}  // namespace trireme::base
