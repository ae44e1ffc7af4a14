#pragma once

#include <nanobind/nanobind.h>

namespace trireme::python {

// Calls it without the interpreter's lock: it may wait for a thread that needs that lock, or for long.
template <typename Call>
auto unlocked(Call call) {
  const nanobind::gil_scoped_release released;
  return call();
}

}  // namespace trireme::python
