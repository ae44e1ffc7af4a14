#include <nanobind/stl/optional.h>

#include "base/config_fields.h"
#include "bindings.h"
#include "errors.h"
#include "value.h"

namespace trireme::python {

void bind_config(nb::module_& module) {
  module.def(
      "config_schema", [] { return to_python(base::config_schema()); },
      "All configurations and their fields: name, type, default, doc, python_only.");
  module.def(
      "check_config",
      [](const std::string& name, nb::dict fields) {
        Dict given;
        try {
          given = to_dict(fields, name);
        } catch (const nb::builtin_exception& problem) {
          throw ConfigError(problem.what());
        }
        return to_python(value_or<ConfigError>(base::check_config(name, given)));
      },
      nb::arg("name"), nb::arg("fields"),
      "Returns the fields, complete and normalised; raises ConfigError if one is invalid.");
}

}  // namespace trireme::python
