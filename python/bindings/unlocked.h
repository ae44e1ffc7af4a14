#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace trireme::python {

// Calls it without the GIL: it may take long or wait for a thread that needs the GIL.
template <typename Call>
auto unlocked(Call call) {
  const nanobind::gil_scoped_release released;
  return call();
}

// An object for threads of the core. The last owner may be in a thread without the GIL, or outlive the interpreter.
inline std::shared_ptr<nanobind::object> kept(nanobind::object given) {
  return {new nanobind::object(std::move(given)), [](nanobind::object* held) {
            if (!Py_IsInitialized()) {
              (void)held->release();
            } else {
              nanobind::gil_scoped_acquire lock;
              held->reset();
            }
            delete held;
          }};
}

}  // namespace trireme::python
