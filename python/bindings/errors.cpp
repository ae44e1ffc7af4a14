#include "errors.h"

namespace trireme::python {
namespace {

PyObject* config_error = nullptr;  // owned by the module, which lives until the interpreter exits

}  // namespace

void bind_errors(nb::module_& module) {
  nb::object bases = nb::make_tuple(nb::handle(PyExc_TypeError), nb::handle(PyExc_ValueError));
  config_error = PyErr_NewExceptionWithDoc(
      "trireme.ConfigError", "An invalid configuration. The message names the field, the value and valid values.",
      bases.ptr(), nullptr);
  if (!config_error) throw nb::python_error();
  module.attr("ConfigError") = nb::handle(config_error);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const ConfigError& problem) {
      PyErr_SetString(config_error, problem.what());
    } catch (const ValueError& problem) {
      PyErr_SetString(PyExc_ValueError, problem.what());
    }
  });
}

void raise_error(const base::Error& error) {
  const std::string message = error.message();
  PyErr_SetString(error.code() == base::ErrorCode::kTimeout ? PyExc_TimeoutError : PyExc_RuntimeError, message.c_str());
  throw nb::python_error();
}

}  // namespace trireme::python
