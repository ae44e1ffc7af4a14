#include "formats/tfrecord.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrow_capsules.h"
#include "bindings.h"
#include "errors.h"
#include "formats/crc32c.h"
#include "unlocked.h"

namespace trireme::python {
namespace {

using formats::FeatureColumn;
using formats::TfRecordReader;
using formats::TfRecordTypes;

// Names and pyarrow's names of types.
using Columns = std::vector<std::pair<std::string, std::string>>;

std::vector<FeatureColumn> columns_of(const Columns& given) {
  std::vector<FeatureColumn> columns;
  for (const auto& [name, type] : given) columns.push_back(value_or_raise(FeatureColumn::of(name, type)));
  return columns;
}

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::optional<RecordBatch> next_batch(TfRecordReader& reader) {
  auto array = value_or_raise(unlocked([&] { return reader.next(); }));
  if (!array) return {};
  return RecordBatch{{*std::move(array), reader.schema()}};
}

bool look(TfRecordTypes& types, const nb::bytes& bytes) {
  return value_or_raise(unlocked([&, content = view(bytes)] { return types.add(content); }));
}

Columns columns(const TfRecordTypes& types) {
  Columns named;
  for (const auto& each : value_or_raise(types.columns())) named.emplace_back(each.name, each.type());
  return named;
}

}  // namespace

void bind_tfrecord(nb::module_& module) {
  nb::class_<TfRecordTypes>(module, "TfRecordTypes")
      .def(nb::init<std::string>(), nb::arg("file"))
      .def("add", look, nb::arg("content"))
      .def("columns", columns);

  nb::class_<TfRecordReader>(module, "TfRecordReader")
      .def(
          "__init__",
          [](TfRecordReader* self, const std::string& file, const Columns& given, const std::vector<std::string>& known,
             std::int64_t skip) { new (self) TfRecordReader(file, columns_of(given), known, skip); },
          nb::arg("file"), nb::arg("columns"), nb::arg("known"), nb::arg("skip"))
      .def(
          "add", [](TfRecordReader& self, const nb::bytes& content) { self.add(view(content)); }, nb::arg("content"))
      .def("end", &TfRecordReader::end)
      .def("next", next_batch);

  module.def(
      "crc32c", [](const nb::bytes& content) { return formats::crc32c(view(content)); }, nb::arg("content"),
      "Castagnoli's CRC-32, the checksum of TFRecord files before masking.");
}

}  // namespace trireme::python
