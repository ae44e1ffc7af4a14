#include "state.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/json.h"
#include "base/log.h"
#include "bindings.h"
#include "checkpoint/state_file.h"
#include "errors.h"
#include "unlocked.h"
#include "value.h"

namespace trireme::python {
namespace {

// Longer bytes are stored with the tensors: as text they would take twice the space.
constexpr std::size_t kLongBytes = 4096;

// The current place in the tree: a linked list on the stack, because only errors need it as text.
struct Place {
  const Place* above = nullptr;
  nb::handle key = {};
  int depth = 0;

  Place below(nb::handle name) const { return {this, name, depth + 1}; }
  // "state['model'][0]".
  std::string text() const {
    return above ? fmt::format("{}[{}]", above->text(), nb::cast<std::string>(nb::repr(key))) : std::string("state");
  }
};

// Keeps the Python owner of a tensor's memory alive. The last reference may be dropped in a thread without the GIL.
std::shared_ptr<const void> keep(nb::handle owner) {
  owner.inc_ref();
  return {owner.ptr(), [](const void* held) {
            if (!Py_IsInitialized()) return;
            nb::gil_scoped_acquire lock;
            nb::handle(const_cast<PyObject*>(static_cast<const PyObject*>(held))).dec_ref();
          }};
}

// A torch tensor on a device. trireme/_device_copy.py copies it.
class PythonDeviceBytes final : public DeviceBytes {
 public:
  explicit PythonDeviceBytes(nb::handle tensor) : tensor_(keep(tensor)) {}

  std::string copy_to_host(const std::vector<Copy>& copies) const override {
    nb::gil_scoped_acquire lock;
    try {
      nb::list jobs;
      for (const auto& copy : copies) {
        const auto& from = static_cast<const PythonDeviceBytes&>(*copy.from);
        jobs.append(nb::make_tuple(from.tensor(), reinterpret_cast<std::uintptr_t>(copy.to)));
      }
      module().attr("copy_to_host")(jobs);
    } catch (const std::exception& failed) {  // Python's too
      return failed.what();
    }
    return "";
  }

  std::shared_ptr<void> pin(void* memory, std::size_t size) const override {
    nb::gil_scoped_acquire lock;
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    nb::object unpin = module().attr("pin")(tensor(), address, size);
    if (unpin.is_none()) return nullptr;
    return {unpin.release().ptr(), [](void* held) {
              if (!Py_IsInitialized()) return;  // the process ends, and the pin with it
              nb::gil_scoped_acquire held_lock;
              const nb::object function = nb::steal(static_cast<PyObject*>(held));
              try {
                function();
              } catch (const nb::python_error& failed) {
                base::log_warning("{}", failed.what());
              }
            }};
  }

 private:
  static nb::module_ module() { return nb::module_::import_("trireme._device_copy"); }
  nb::handle tensor() const { return const_cast<PyObject*>(static_cast<const PyObject*>(tensor_.get())); }

  std::shared_ptr<const void> tensor_;
};

// Calls trireme/_state.py, which converts types of torch and numpy. Its errors get the place prepended.
class PythonSide {
 public:
  template <typename... Arguments>
  nb::object call(const char* function, const Place& place, Arguments&&... arguments) const {
    try {
      return module_.attr(function)(std::forward<Arguments>(arguments)...);
    } catch (const nb::python_error& raised) {
      if (!raised.matches(module_.attr("Refused"))) throw;
      const std::string why = nb::cast<std::string>(nb::str(nb::handle(raised.value())));
      throw nb::type_error(fmt::format("{} {}", place.text(), why).c_str());
    }
  }

 private:
  nb::module_ module_ = nb::module_::import_("trireme._state");
};

class Encoder {
 public:
  explicit Encoder(bool allow_pickle) : allow_pickle_(allow_pickle) {}

  Value encode(nb::handle object, const Place& place) const {
    PyObject* held = object.ptr();
    // Exactly these types: subclasses (np.float64, IntEnum, torch.Size) need their own encoding.
    if (object.is_none()) return nullptr;
    if (PyBool_Check(held)) return held == Py_True;
    if (PyLong_CheckExact(held)) return encode_int(object, place);
    if (PyFloat_CheckExact(held)) return PyFloat_AsDouble(held);
    if (PyUnicode_CheckExact(held)) return encode_text(object, place);
    if (PyBytes_CheckExact(held)) return encode_bytes(object);
    if (place.depth > base::kMaxDepth) {
      throw nb::value_error("the state is nested too deeply: check for a list or dict that contains itself");
    }
    if (PyDict_CheckExact(held)) return encode_dict(nb::borrow<nb::dict>(object), place);
    if (PyList_CheckExact(held)) return encode_items(object, place);
    if (PyTuple_CheckExact(held)) return Dict{{"$tuple", encode_items(object, place)}};
    if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor>(object);
    return encode_other(object, place);
  }

 private:
  Value encode_int(nb::handle object, const Place& place) const {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow != 0) return encode_other(object, place);
    return static_cast<std::int64_t>(number);
  }

  static Value encode_text(nb::handle object, const Place& place) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (text) return std::string(text, static_cast<std::size_t>(size));
    PyErr_Clear();
    throw nb::value_error(fmt::format("{} is text that UTF-8 cannot encode (lone surrogates): store it as bytes, with "
                                      "encode(errors='surrogateescape')",
                                      place.text())
                              .c_str());
  }

  static Value encode_bytes(nb::handle object) {
    const auto bytes = nb::borrow<nb::bytes>(object);
    if (bytes.size() <= kLongBytes) return Bytes{from_bytes(bytes)};
    return Dict{{"$blob", Tensor::view(DType::kU8, {static_cast<std::int64_t>(bytes.size())},
                                       const_cast<char*>(bytes.c_str()), keep(object))}};
  }

  // Copied, because the code of a value (for example while pickling) may change the dict.
  static std::vector<std::pair<nb::object, nb::object>> items_of(const nb::dict& dict) {
    std::vector<std::pair<nb::object, nb::object>> items;
    items.reserve(dict.size());
    for (auto [key, item] : dict) items.emplace_back(nb::borrow(key), nb::borrow(item));
    return items;
  }

  Value encode_dict(const nb::dict& dict, const Place& place) const {
    bool plain = true;
    for (nb::handle key : dict.keys()) {
      plain = plain && PyUnicode_CheckExact(key.ptr()) &&
              (PyUnicode_GetLength(key.ptr()) == 0 || PyUnicode_ReadChar(key.ptr(), 0) != '$');
    }
    return plain ? Value(encode_plain_dict(dict, place)) : Value(Dict{{"$dict", encode_pairs(dict, place)}});
  }

  Dict encode_plain_dict(const nb::dict& dict, const Place& place) const {
    Dict made;
    for (const auto& [key, item] : items_of(dict)) {
      const Place below = place.below(key);
      made.append(encode_text(key, below).as_string(), encode(item, below));
    }
    return made;
  }

  List encode_pairs(const nb::dict& dict, const Place& place) const {
    List pairs;
    for (const auto& [key, item] : items_of(dict)) {
      const Place below = place.below(key);
      Value name = encode(key, below);
      if (name.get_if<Tensor>())
        throw nb::type_error(fmt::format("{}: a tensor cannot be a key", below.text()).c_str());
      pairs.push_back(List{std::move(name), encode(item, below)});
    }
    return pairs;
  }

  List encode_items(nb::handle sequence, const Place& place) const {
    List list;
    for (nb::handle item : sequence) {
      const nb::int_ index(list.size());
      list.push_back(encode(item, place.below(index)));
    }
    return list;
  }

  // torch, numpy and other types: (mark, content) or (None, replacement).
  Value encode_other(nb::handle object, const Place& place) const {
    const nb::object answer = python_.call("encode_object", place, object, allow_pickle_);
    if (nb::isinstance<Tensor>(answer)) return nb::cast<Tensor>(answer);
    const nb::object mark = answer[0];
    Value content = encode(answer[1], {place.above, place.key, place.depth + 1});
    if (mark.is_none()) return content;
    return Dict{{nb::cast<std::string>(mark), std::move(content)}};
  }

  bool allow_pickle_;
  PythonSide python_;
};

class Decoder {
 public:
  explicit Decoder(bool allow_pickle) : allow_pickle_(allow_pickle) {}

  nb::object decode(const Value& value, const Place& place) const {
    if (const auto* dict = value.get_if<Dict>()) return decode_dict(*dict, place);
    if (const auto* list = value.get_if<List>()) return decode_list(*list, place);
    if (const auto* tensor = value.get_if<Tensor>()) return python_.call("decode_tensor", place, *tensor);
    return to_python(value);
  }

  nb::object decode_dict(const Dict& dict, const Place& place) const {
    if (dict.size() == 1 && dict.begin()->first.starts_with('$')) return decode_marked(*dict.begin(), place);
    nb::dict made;
    for (const auto& [key, item] : dict) {
      const nb::str name(key.data(), key.size());
      made[name] = decode(item, place.below(name));
    }
    return made;
  }

 private:
  nb::list decode_list(const List& list, const Place& place) const {
    nb::list made;
    for (const auto& item : list) {
      const nb::int_ index(nb::len(made));
      made.append(decode(item, place.below(index)));
    }
    return made;
  }

  nb::object decode_marked(const Dict::Item& marked, const Place& place) const {
    const auto& [mark, content] = marked;
    const auto* list = content.get_if<List>();
    if (mark == "$tuple" && list) return nb::tuple(decode_list(*list, place));
    if (mark == "$dict" && list) return decode_pairs(*list, place);
    // Pass the core's tensor, not a torch tensor: decode_mark() decides whether torch is needed.
    const auto* tensor = content.get_if<Tensor>();
    const nb::object below = tensor ? nb::cast(*tensor) : decode_below(content, place);
    return python_.call("decode_mark", place, mark, below, allow_pickle_);
  }

  // {"bytes": tensor, "dtype": ...}: passes the core's tensor, as above.
  nb::object decode_below(const Value& content, const Place& place) const {
    const auto* dict = content.get_if<Dict>();
    if (!dict || dict->size() < 2) return decode(content, place);
    nb::dict made;
    for (const auto& [key, item] : *dict) {
      const auto* tensor = item.get_if<Tensor>();
      made[nb::str(key.data(), key.size())] = tensor ? nb::cast(*tensor) : decode(item, place);
    }
    return made;
  }

  nb::object decode_pairs(const List& pairs, const Place& place) const {
    nb::dict made;
    for (const auto& each : pairs) {
      const auto* pair = each.get_if<List>();
      if (!pair || pair->size() != 2) {
        throw nb::value_error(fmt::format("{} is damaged: '$dict' must be a list of pairs", place.text()).c_str());
      }
      const nb::object key = decode((*pair)[0], place);
      made[key] = decode((*pair)[1], place.below(key));
    }
    return made;
  }

  bool allow_pickle_;
  PythonSide python_;
};

// The result of encode() of trireme/_state.py.
struct State {
  Dict tree;
};

// The bytes of a tensor, for torch.frombuffer() and numpy.frombuffer(), which keep the tensor alive.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* tensor = nb::inst_ptr<Tensor>(self);
  return PyBuffer_FillInfo(view, self, tensor->data(), static_cast<Py_ssize_t>(tensor->num_bytes()), 0, flags);
}

Tensor make_tensor(std::uintptr_t address, const std::string& dtype, std::vector<std::int64_t> shape,
                   nb::handle owner) {
  return Tensor::view(dtype_of(dtype), std::move(shape), reinterpret_cast<void*>(address), keep(owner));
}

Tensor make_device_tensor(const std::string& dtype, std::vector<std::int64_t> shape, nb::handle tensor) {
  return Tensor::on_device(dtype_of(dtype), std::move(shape), std::make_shared<PythonDeviceBytes>(tensor));
}

void save(const std::string& folder, nb::handle state, bool allow_pickle) {
  const Dict tree = to_state(state, allow_pickle);
  value_or_raise(unlocked([&] { return checkpoint::save_state(folder, tree); }));
}

nb::object load(const std::string& path, bool allow_pickle, bool map, bool is_file,
                std::map<std::string, std::string> elsewhere, bool verify) {
  const checkpoint::LoadOptions options{.map = map, .verify = verify, .elsewhere = std::move(elsewhere)};
  auto read = unlocked(
      [&] { return is_file ? checkpoint::load_safetensors(path, options) : checkpoint::load_state(path, options); });
  return from_state(value_or_raise(std::move(read)), allow_pickle);
}

}  // namespace

Dict to_state(nb::handle tree, bool allow_pickle) {
  if (nb::isinstance<State>(tree)) return nb::cast<const State&>(tree).tree;
  if (!nb::isinstance<nb::dict>(tree)) {
    const std::string name = nb::cast<std::string>(nb::str(nb::handle(tree.type().attr("__name__"))));
    throw nb::type_error(fmt::format("a state must be a dict, got {}", name).c_str());
  }
  return Encoder(allow_pickle).encode(tree, {}).as_dict();
}

nb::object from_state(const Dict& state, bool allow_pickle) { return Decoder(allow_pickle).decode_dict(state, {}); }

void bind_state(nb::module_& module) {
  // States that a program still holds when it exits are not leaks.
  nb::set_leak_warnings(false);
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};
  nb::class_<Tensor>(module, "Tensor", nb::type_slots(slots), "Memory with a type and a shape. Exports its bytes.")
      .def(nb::new_(&make_tensor), nb::arg("address"), nb::arg("dtype"), nb::arg("shape"), nb::arg("owner"))
      .def_static("on_device", &make_device_tensor, nb::arg("dtype"), nb::arg("shape"), nb::arg("tensor"))
      .def_prop_ro("dtype", [](const Tensor& self) { return name_of(self.dtype()); })
      .def_prop_ro("shape", [](const Tensor& self) { return nb::tuple(nb::cast(self.shape())); })
      .def_prop_ro("nbytes", &Tensor::num_bytes)
      .def("__repr__", &Tensor::describe);
  nb::class_<State>(module, "State", "A state in the core's representation.");
  module.def(
      "encode_state", [](nb::handle tree, bool allow_pickle) { return State{to_state(tree, allow_pickle)}; },
      nb::arg("tree"), nb::arg("allow_pickle"));
  module.def("save_state", &save, nb::arg("folder"), nb::arg("state"), nb::arg("allow_pickle"));
  module.def("load_state", &load, nb::arg("path"), nb::arg("allow_pickle"), nb::arg("map"), nb::arg("is_file"),
             nb::arg("elsewhere"), nb::arg("verify") = true);
}

}  // namespace trireme::python
