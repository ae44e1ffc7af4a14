#include "value.h"

#include <fmt/format.h>

namespace trireme::python {
namespace {

std::string python_type_name(nb::handle object) {
  nb::handle type = object.type();
  std::string module = nb::cast<std::string>(nb::str(nb::handle(type.attr("__module__"))));
  std::string name = nb::cast<std::string>(nb::str(nb::handle(type.attr("__qualname__"))));
  return module == "builtins" ? name : module + "." + name;
}

[[noreturn]] void refuse(nb::handle object, const std::string& path) {
  std::string shape;
  if (nb::hasattr(object, "shape")) {
    shape = " of shape " + nb::cast<std::string>(nb::str(nb::handle(object.attr("shape"))));
  }
  throw nb::value_error(
      fmt::format(
          "{} is of type {}{}, which cannot be stored: use numbers, strings, and lists and dicts of them (convert an "
          "array with .item() or .tolist())",
          path, python_type_name(object), shape)
          .c_str());
}

Value from_int(nb::handle object, const std::string& path) {
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (number == -1 && PyErr_Occurred()) throw nb::python_error();
  if (overflow != 0) throw nb::value_error(fmt::format("{} does not fit into 64 bits", path).c_str());
  return static_cast<std::int64_t>(number);
}

// NumPy scalars, 0-d arrays and 0-d tensors all have shape () and item().
bool is_scalar_like(nb::handle object) {
  if (!nb::hasattr(object, "item") || !nb::hasattr(object, "shape")) return false;
  nb::object shape = object.attr("shape");
  return PySequence_Check(shape.ptr()) && PySequence_Size(shape.ptr()) == 0;
}

List to_list(nb::handle sequence, const std::string& path) {
  List list;
  std::size_t index = 0;
  for (nb::handle item : sequence) list.push_back(to_value(item, fmt::format("{}[{}]", path, index++)));
  return list;
}

}  // namespace

Dict to_dict(nb::handle object, const std::string& path) {
  if (!nb::isinstance<nb::dict>(object)) {
    throw nb::type_error(fmt::format("{} must be a dict, got {}", path, python_type_name(object)).c_str());
  }
  Dict dict;
  for (auto [key, item] : nb::borrow<nb::dict>(object)) {
    if (!nb::isinstance<nb::str>(key)) {
      std::string text = nb::cast<std::string>(nb::repr(key));
      throw nb::value_error(fmt::format("{} has the key {}: keys must be strings", path, text).c_str());
    }
    std::string name = nb::cast<std::string>(key);
    dict[name] = to_value(item, fmt::format("{}['{}']", path, name));
  }
  return dict;
}

Value to_value(nb::handle object, const std::string& path) {
  if (object.is_none()) return nullptr;
  if (PyBool_Check(object.ptr())) return object.ptr() == Py_True;
  if (PyLong_Check(object.ptr())) return from_int(object, path);
  if (PyFloat_Check(object.ptr())) return PyFloat_AsDouble(object.ptr());
  if (PyUnicode_Check(object.ptr())) return nb::cast<std::string>(object);
  if (PyBytes_Check(object.ptr())) return Bytes{from_bytes(nb::borrow<nb::bytes>(object))};
  if (nb::isinstance<nb::dict>(object)) return to_dict(object, path);
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) return to_list(object, path);
  if (is_scalar_like(object)) {
    nb::object item = object.attr("item")();
    // item() of an object array may return anything, including itself.
    if (!is_scalar_like(item)) return to_value(item, path);
  }
  if (nb::hasattr(object, "__fspath__")) return nb::cast<std::string>(nb::str(object));
  refuse(object, path);
}

nb::object to_python(const Value& value) {
  struct Convert {
    nb::object operator()(std::nullptr_t) const { return nb::none(); }
    nb::object operator()(bool held) const { return nb::bool_(held); }
    nb::object operator()(std::int64_t held) const { return nb::int_(held); }
    nb::object operator()(double held) const { return nb::float_(held); }
    // Text from a process may not be valid UTF-8.
    nb::object operator()(const std::string& held) const {
      return nb::steal(PyUnicode_DecodeUTF8(held.data(), static_cast<Py_ssize_t>(held.size()), "replace"));
    }
    nb::object operator()(const Bytes& held) const { return to_bytes(held.data); }
    nb::object operator()(const List& held) const {
      nb::list list;
      for (const auto& item : held) list.append(to_python(item));
      return list;
    }
    nb::object operator()(const Dict& held) const { return to_python(held); }
    // Only states hold tensors, and state.cpp converts those.
    nb::object operator()(const Tensor& held) const { return nb::str(held.describe().c_str()); }
  };
  return std::visit(Convert{}, value.variant());
}

nb::dict to_python(const Dict& dict) {
  nb::dict made;
  for (const auto& [key, item] : dict) made[nb::str(key.data(), key.size())] = to_python(item);
  return made;
}

nb::bytes to_bytes(const std::string& data) { return nb::bytes(data.data(), data.size()); }

std::string from_bytes(const nb::bytes& data) { return std::string(data.c_str(), data.size()); }

}  // namespace trireme::python
