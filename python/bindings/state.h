#pragma once

#include <nanobind/nanobind.h>

#include "trireme/value.h"

// Python objects as states of the core and back. What Python has and the core has not goes under names that begin with
// '$', see docs/state_format.md; trireme/_state.py knows torch and numpy.

namespace trireme::python {

namespace nb = nanobind;

// A dict, or what encode() of trireme/_state.py has made of one. Tensors are views: nothing is copied, and their owners
// stay alive with them. A TypeError says where in the tree something cannot be stored.
Dict to_state(nb::handle tree, bool allow_pickle = false);

// Tensors are views again. Where a pickle is met that is not allowed, the TypeError says where.
nb::object from_state(const Dict& state, bool allow_pickle = false);

}  // namespace trireme::python
