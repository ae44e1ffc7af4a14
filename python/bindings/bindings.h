#pragma once

#include <nanobind/nanobind.h>

// One function per file of bindings.

namespace trireme::python {

namespace nb = nanobind;

void bind_boosting(nb::module_& module);
void bind_boxes(nb::module_& module);
void bind_config(nb::module_& module);
void bind_data(nb::module_& module);
void bind_filesystem(nb::module_& module);
void bind_formats(nb::module_& module);
void bind_image(nb::module_& module);
void bind_preprocess(nb::module_& module);
void bind_run(nb::module_& module);
void bind_session(nb::module_& module);
void bind_shard_plan(nb::module_& module);
void bind_stacks(nb::module_& module);
void bind_state(nb::module_& module);
void bind_tfrecord(nb::module_& module);

}  // namespace trireme::python
