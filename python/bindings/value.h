#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "trireme/value.h"

namespace trireme::python {

namespace nb = nanobind;

// Converts None, bool, int, float, str, bytes, list, tuple, dict, NumPy scalars and 0-d tensors. `path` is the user's
// name of the value ("metrics"). For any other type, the ValueError names the place ("metrics['model']") and the type.
Value to_value(nb::handle object, const std::string& path);
Dict to_dict(nb::handle object, const std::string& path);

nb::object to_python(const Value& value);
nb::dict to_python(const Dict& dict);

nb::bytes to_bytes(const std::string& data);
std::string from_bytes(const nb::bytes& data);

}  // namespace trireme::python
