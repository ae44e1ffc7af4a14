#include "worker/stacks.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace trireme::python {

void bind_stacks(nb::module_& module) {
  module.def("prepare_stacks", &worker::prepare_stacks);
  module.def("set_python_dump", &worker::set_python_dump, nb::arg("signal"), nb::arg("fd"), nb::arg("library_folders"));
  module.def(
      "collect_stacks",
      [](double timeout_s) {
        nb::gil_scoped_release release;
        worker::Stacks stacks = worker::collect_stacks(base::Seconds(timeout_s));
        return std::pair(std::move(stacks.where), std::move(stacks.text));
      },
      nb::arg("timeout_s"), "The location of the main thread, and the stacks of all threads.");
}

}  // namespace trireme::python
