#pragma once

#include <nanobind/nanobind.h>

#include "base/result.h"
#include "trireme/config.h"

namespace trireme::python {

namespace nb = nanobind;

// Creates ConfigError, which is both a TypeError and a ValueError, so that callers can catch either.
void bind_errors(nb::module_& module);

// RuntimeError, or TimeoutError for the code kTimeout.
[[noreturn]] void raise_error(const base::Error& error);

template <typename T>
T value_or_raise(base::Result<T> result) {
  if (!result) raise_error(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

// ConfigError or ValueError.
template <typename Exception, typename T>
T value_or(base::Result<T> result) {
  if (!result) throw Exception(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace trireme::python
