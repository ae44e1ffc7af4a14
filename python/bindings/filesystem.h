#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "storage/files.h"

namespace trireme::python {

namespace nb = nanobind;

// Adapts a Python object with the methods of trireme/filesystem.h (see python/trireme/_storage.py); None: local
// folders.
std::shared_ptr<storage::Files> files_of(nb::handle filesystem);

}  // namespace trireme::python
