#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "bindings.h"
#include "errors.h"
#include "formats/npy.h"
#include "formats/tar.h"

namespace trireme::python {
namespace {

// Larger reads take the interpreter's lock less often; a store would be asked for every block of 512 bytes otherwise.
constexpr std::size_t kStreamBlock = std::size_t{1} << 20;

// Reads a Python file in large blocks.
class PythonStream {
 public:
  explicit PythonStream(nb::object stream) : read_(stream.attr("read")) {}

  std::size_t read(char* out, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      if (at_ == block_.size()) {
        block_ = nb::cast<nb::bytes>(read_(std::max(kStreamBlock, size - done)));
        at_ = 0;
        if (block_.size() == 0) break;
      }
      const std::size_t part = std::min(size - done, block_.size() - at_);
      std::memcpy(out + done, block_.c_str() + at_, part);
      at_ += part;
      done += part;
    }
    return done;
  }

 private:
  nb::object read_;
  nb::bytes block_{"", 0};
  std::size_t at_ = 0;
};

class PythonTar {
 public:
  explicit PythonTar(nb::object stream)
      : stream_(std::move(stream)), tar_([this](char* out, std::size_t size) { return stream_.read(out, size); }) {}
  PythonTar(const PythonTar&) = delete;
  PythonTar& operator=(const PythonTar&) = delete;

  nb::object next() {
    const auto member = value_or_raise(tar_.next());
    if (!member) return nb::none();
    size_ = member->size;
    // Like tarfile: names of any bytes become text that can be converted back.
    PyObject* name =
        PyUnicode_DecodeUTF8(member->name.data(), static_cast<Py_ssize_t>(member->name.size()), "surrogateescape");
    if (!name) nb::raise_python_error();
    return nb::make_tuple(nb::steal<nb::str>(name), member->size, member->file);
  }

  nb::bytes content() {
    auto made = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size_)));
    if (!made.is_valid()) nb::raise_python_error();
    value_or_raise(tar_.content(PyBytes_AsString(made.ptr())));
    return made;
  }

 private:
  PythonStream stream_;
  formats::TarReader tar_;
  std::uint64_t size_ = 0;  // of the current member
};

nb::object parse_npy(const nb::bytes& content) {
  const auto prefix = value_or_raise(formats::parse_npy({content.c_str(), content.size()}, formats::NpyValues::kAny));
  if (!prefix.header) return nb::cast(prefix.needed);
  const auto& header = *prefix.header;
  return nb::make_tuple(header.descr, nb::tuple(nb::cast(header.shape)), header.fortran_order, header.begin);
}

}  // namespace

void bind_formats(nb::module_& module) {
  nb::class_<PythonTar>(module, "TarReader", "The members of a tar file, from a stream that is read in order.")
      .def(nb::init<nb::object>(), nb::arg("stream"))
      .def("next", &PythonTar::next, nb::sig("def next(self) -> tuple[str, int, bool] | None"),
           "The next member: its name, its size, and whether it is a file. None at the end.")
      .def("content", &PythonTar::content, "The bytes of the current member. Call it once.");
  module.def("parse_npy", &parse_npy, nb::arg("content"),
             nb::sig("def parse_npy(content: bytes) -> tuple[str, tuple[int, ...], bool, int] | int"),
             "The header in the first bytes of a .npy file: type, shape, whether it is in Fortran order, and offset of "
             "the values. If the bytes are too few: how many are needed.");
}

}  // namespace trireme::python
