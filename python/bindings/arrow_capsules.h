#pragma once

#include <nanobind/nanobind.h>

#include "data/arrow_c.h"

namespace trireme::python {

// Wraps Arrow's C structs (https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).
template <typename T>
nanobind::capsule capsule_of(T* owned, const char* name) {
  return nanobind::capsule(owned, name, [](void* held) noexcept {
    auto* c = static_cast<T*>(held);
    if (c->release) c->release(c);
    delete c;
  });
}

}  // namespace trireme::python
