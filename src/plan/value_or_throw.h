#pragma once

#include <stdexcept>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace trireme::plan {

// The border to the public classes, whose methods throw.
template <typename T>
T value_or_throw(base::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace trireme::plan
