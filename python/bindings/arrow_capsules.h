#pragma once

#include <nanobind/nanobind.h>

#include "data/arrow_owned.h"

// Arrow's C structs in capsules (https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).

namespace trireme::python {

namespace nb = nanobind;

template <typename T>
nb::capsule capsule_of(data::Owned<T> owned, const char* name) {
  return nb::capsule(new T(owned.give()), name, [](void* held) noexcept {
    auto* c = static_cast<T*>(held);
    if (c->release) c->release(c);
    delete c;
  });
}

inline nb::tuple capsules_of(data::Record record) {
  return nb::make_tuple(capsule_of(std::move(record.schema), "arrow_schema"),
                        capsule_of(std::move(record.array), "arrow_array"));
}

// The struct in a capsule, which is empty afterwards.
template <typename T>
data::Owned<T> moved_out(nb::handle capsule, const char* name) {
  auto* held = static_cast<T*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (!held) throw nb::python_error();
  return data::Owned<T>(*held);
}

// A record batch for one reader.
struct RecordBatch {
  data::Record record;

  nb::tuple arrow_c_array(nb::handle) {
    if (!record.array->release) throw nb::value_error("this batch was read before");
    return capsules_of(std::move(record));
  }
};

}  // namespace trireme::python
