#include "bindings.h"
#include "errors.h"

NB_MODULE(_core, module) {
  module.attr("version") = TRIREME_VERSION;
  trireme::python::bind_errors(module);
  trireme::python::bind_boosting(module);
  trireme::python::bind_boxes(module);
  trireme::python::bind_config(module);
  trireme::python::bind_data(module);
  trireme::python::bind_filesystem(module);
  trireme::python::bind_formats(module);
  trireme::python::bind_image(module);
  trireme::python::bind_preprocess(module);
  trireme::python::bind_run(module);
  trireme::python::bind_session(module);
  trireme::python::bind_shard_plan(module);
  trireme::python::bind_stacks(module);
  trireme::python::bind_state(module);
  trireme::python::bind_tfrecord(module);
}
