#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrow_capsules.h"
#include "base/json.h"
#include "bindings.h"
#include "errors.h"
#include "preprocess/preprocessor_impl.h"
#include "unlocked.h"
#include "value.h"

// Preprocessors for Python's classes: arguments and statistics as in their JSON, tables over the Arrow C interfaces.

namespace trireme::python {
namespace {

using preprocess::PreprocessorImpl;
using Impl = std::shared_ptr<const PreprocessorImpl>;  // shared with learners

preprocess::Table table_of(nb::handle batch) {
  const nb::object capsules = batch.attr("__arrow_c_array__")();
  return preprocess::Table(
      {moved_out<ArrowArray>(capsules[1], "arrow_array"), moved_out<ArrowSchema>(capsules[0], "arrow_schema")});
}

base::Result<void> read_into(preprocess::Learner& learner, data::OwnedStream stream) {
  const auto failure = [&] {
    const char* text = stream->get_last_error(&*stream);
    return base::Error(text ? text : "the stream of batches failed");
  };
  data::OwnedSchema schema;
  if (stream->get_schema(&*stream, &*schema) != 0) return failure();
  while (true) {
    data::Record record;
    if (stream->get_next(&*stream, &*record.array) != 0) return failure();
    if (!record.array->release) return {};
    record.schema = preprocess::copied(*schema);
    TRIREME_TRY(learner.add(preprocess::Table(std::move(record))));
  }
}

class PythonPreprocessor {
 public:
  explicit PythonPreprocessor(Impl impl) : impl_(std::move(impl)) {}

  static PythonPreprocessor of_json(const std::string& described) {
    const auto parsed = value_or<ValueError>(base::parse_plain_json(described));
    if (!parsed.get_if<Dict>()) throw nb::value_error("expected a JSON object");
    return PythonPreprocessor(value_or<ValueError>(preprocess::read_preprocessor(parsed.as_dict())));
  }

  const Impl& impl() const { return impl_; }

  RecordBatch transform(nb::handle batch, bool back) const {
    if (impl_->fittable() && !impl_->stats()) throw nb::value_error("this preprocessor has not been fitted");
    auto table = table_of(batch);
    auto done = unlocked([&]() -> base::Result<data::Record> {
      TRIREME_TRY(impl_->apply(table, back));
      return std::move(table).record();
    });
    return {value_or<ValueError>(std::move(done))};
  }

 private:
  Impl impl_;
};

class PythonLearner {
 public:
  explicit PythonLearner(Impl impl) : impl_(std::move(impl)), learner_(impl_->learner()) {
    if (!learner_) throw nb::value_error("this preprocessor needs no fit()");
  }

  void add(nb::handle batches) {
    const nb::object capsule = batches.attr("__arrow_c_stream__")();
    auto stream = moved_out<ArrowArrayStream>(capsule, "arrow_array_stream");
    value_or<ValueError>(unlocked([&] { return read_into(*learner_, std::move(stream)); }));
  }

  nb::tuple done() {
    auto fitted = impl_->unfitted();
    auto stats = unlocked([&]() -> base::Result<Dict> {
      TRIREME_ASSIGN(auto found, learner_->done());
      TRIREME_TRY(fitted->take(found));
      return found;
    });
    const Dict found = value_or<ValueError>(std::move(stats));
    return nb::make_tuple(PythonPreprocessor(std::move(fitted)), to_python(found));
  }

 private:
  Impl impl_;
  std::unique_ptr<preprocess::Learner> learner_;  // refers to impl_
};

}  // namespace

void bind_preprocess(nb::module_& module) {
  nb::class_<PythonLearner>(module, "PreprocessorLearner")
      .def("add", &PythonLearner::add, nb::arg("batches"), "Reads an object with __arrow_c_stream__.")
      .def("done", &PythonLearner::done, "The fitted preprocessor, and its statistics.");
  nb::class_<PythonPreprocessor>(module, "CorePreprocessor")
      .def_static("of_json", &PythonPreprocessor::of_json, nb::arg("described"))
      .def_prop_ro("arguments",
                   [](const PythonPreprocessor& self) { return to_python(self.impl()->origin().arguments); })
      .def_prop_ro("inputs", [](const PythonPreprocessor& self) { return self.impl()->inputs(); })
      .def_prop_ro("outputs", [](const PythonPreprocessor& self) { return self.impl()->outputs(); })
      .def_prop_ro("fittable", [](const PythonPreprocessor& self) { return self.impl()->fittable(); })
      .def_prop_ro("learned", [](const PythonPreprocessor& self) { return self.impl()->learned(); })
      .def("learner", [](const PythonPreprocessor& self) { return PythonLearner(self.impl()); })
      .def("transform", &PythonPreprocessor::transform, nb::arg("batch"), nb::arg("back") = false,
           "Takes an object with __arrow_c_array__, and returns one.");
}

}  // namespace trireme::python
