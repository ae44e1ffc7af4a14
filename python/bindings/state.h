#pragma once

#include <nanobind/nanobind.h>

#include "trireme/value.h"

// Converts Python objects to states of the core and back. Types that the core does not have are stored under names that
// begin with '$', see docs/state_format.md; trireme/_state.py converts those of torch and numpy.

namespace trireme::python {

namespace nb = nanobind;

// tree: a dict, or the result of encode() of trireme/_state.py. Tensors are views that keep their owners alive; nothing
// is copied. Throws a TypeError that names the place of a value that cannot be stored.
Dict to_state(nb::handle tree, bool allow_pickle = false);

// Tensors are views. Throws a TypeError that names the place of a pickle if pickles are not allowed.
nb::object from_state(const Dict& state, bool allow_pickle = false);

}  // namespace trireme::python
