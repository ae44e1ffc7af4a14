#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "trireme/value.h"

namespace trireme::python {

namespace nb = nanobind;

// Python's None, bool, int, float, str, bytes, list, tuple and dict, NumPy scalars and 0-d tensors. `path` is how the
// user knows the value ("metrics"): the ValueError for anything else says where it is ("metrics['model']") and what it
// is.
Value to_value(nb::handle object, const std::string& path);
Dict to_dict(nb::handle object, const std::string& path);

nb::object to_python(const Value& value);
nb::dict to_python(const Dict& dict);

nb::bytes to_bytes(const std::string& data);
std::string from_bytes(const nb::bytes& data);

}  // namespace trireme::python
