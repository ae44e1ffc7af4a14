#pragma once

#include <nanobind/nanobind.h>

#include "base/fields.h"
#include "errors.h"
#include "value.h"

namespace trireme::python {

// A struct from a dict with some or all of its fields. ConfigError names the field that is wrong.
template <base::HasFields T>
T struct_from(const nb::dict& given, const char* type_name) {
  return value_or<ConfigError>(base::from_dict<T>(to_dict(given, type_name), type_name));
}

}  // namespace trireme::python
