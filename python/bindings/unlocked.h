#pragma once

#include <nanobind/nanobind.h>

namespace trireme::python {

// Calls it without the GIL: it may take long or wait for a thread that needs the GIL.
template <typename Call>
auto unlocked(Call call) {
  const nanobind::gil_scoped_release released;
  return call();
}

}  // namespace trireme::python
