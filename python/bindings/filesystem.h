#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "storage/files.h"

namespace trireme::python {

namespace nb = nanobind;

// A Python object with the methods of trireme/filesystem.h (python/trireme/_storage.py) as storage of the core; None:
// folders of this machine.
std::shared_ptr<storage::Files> files_of(nb::handle filesystem);

}  // namespace trireme::python
