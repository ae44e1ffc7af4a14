#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "arrow_capsules.h"
#include "base/config_fields.h"
#include "bindings.h"
#include "data/digest_log.h"
#include "data/element_types.h"
#include "data/pipeline.h"
#include "data/random.h"
#include "data/shard.h"
#include "errors.h"
#include "fields.h"
#include "unlocked.h"
#include "value.h"

namespace trireme::python {
namespace {

using data::Batch;
using data::Pass;
using data::Shard;

// Set while a reading thread runs Python code: a garbage collection there may drop the last reference to the pass that
// the thread belongs to.
thread_local bool in_reader = false;

struct InReader {
  InReader() { in_reader = true; }
  ~InReader() { in_reader = false; }
};

// Fragments that Python opens: open(fragment, row) -> (an object with __arrow_c_stream__, first row).
class PythonSource final : public data::Source {
 public:
  explicit PythonSource(nb::object open) : open_(kept(std::move(open))) {}

  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t) override {
    nb::gil_scoped_acquire lock;
    const InReader here;
    try {
      const auto answer = nb::cast<nb::tuple>((*open_)(fragment, row));
      const nb::object capsule = answer[0].attr("__arrow_c_stream__")();
      return data::Opened{moved_out<ArrowArrayStream>(capsule, "arrow_array_stream"),
                          nb::cast<std::int64_t>(answer[1])};
    } catch (const nb::python_error& raised) {  // Python's side keeps the exception itself
      return base::Error(nb::cast<std::string>(nb::str(raised.value())));
    } catch (const nb::cast_error&) {
      return base::Error("open() must return a tuple (stream, row)");
    }
  }

 private:
  std::shared_ptr<nb::object> open_;  // shared for its deleter
};

nb::dlpack::dtype dlpack_type(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto* known = data::find_element_type(dtype);
  const char kind = known ? known->kind() : 'f';
  const auto code = kind == 'b' ? Code::Bool : kind == 'u' ? Code::UInt : kind == 'i' ? Code::Int : Code::Float;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(size_of(dtype) * 8), 1};
}

nb::object numpy_of(const Tensor& tensor) {
  std::vector<std::size_t> shape(tensor.shape().begin(), tensor.shape().end());
  auto* handle = new Tensor(tensor);
  nb::capsule owner(handle, [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  return nb::cast(nb::ndarray<nb::numpy>(const_cast<void*>(tensor.data()), shape.size(), shape.data(), owner, nullptr,
                                         dlpack_type(tensor.dtype())));
}

// The columns that numpy can use without a copy.
nb::dict tensors(const Batch& batch) {
  nb::dict made;
  const auto& fields = batch.schema()->fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (auto tensor = batch.tensor(i)) made[fields[i].name.c_str()] = numpy_of(*tensor);
  }
  return made;
}

// A pass whose threads may need the interpreter's lock while they end. Any thread may call: close() waits for a thread
// that is in next().
class PythonPass {
 public:
  explicit PythonPass(std::unique_ptr<Pass> pass)
      : epoch_(pass->epoch()), steps_(pass->steps()), pass_(std::move(pass)) {}
  ~PythonPass() { close(); }

  std::int64_t epoch() const { return epoch_; }
  std::int64_t steps() const { return steps_; }

  void close() {
    closed_ = true;                   // a thread that calls next() again must not keep the mutex
    nb::gil_scoped_release released;  // before the mutex: the thread that holds it may be waiting for this lock
    std::lock_guard lock(mutex_);
    if (in_reader) {  // maybe a thread of this pass, which cannot join itself
      std::thread([pass = std::move(pass_)] {}).detach();
    }
    pass_.reset();
  }

  // A batch; None at the end; False if none was ready in time.
  nb::object next(double timeout_s) {
    auto next = unlocked([&]() -> std::optional<base::Result<data::Next>> {
      std::lock_guard lock(mutex_);
      if (closed_) return {};
      return pass_->next(std::chrono::duration<double>(timeout_s));
    });
    if (!next) throw nb::value_error("this pass over the data is closed");
    if (!*next) raise_error(next->error());
    data::Next& given = next->value();
    if (given.state == data::Next::State::kTimeout) return nb::borrow(Py_False);
    if (given.state == data::Next::State::kEnd) return nb::none();
    return nb::cast(*std::move(given.batch));
  }

  // After next() has raised: continues with the rows that it has not returned, in a schema that may have changed.
  void reopen() {
    auto reopened = unlocked([&]() -> base::Result<void> {
      std::lock_guard lock(mutex_);
      return closed_ ? base::Result<void>(base::error("this pass over the data is closed")) : pass_->reopen();
    });
    value_or_raise(std::move(reopened));
  }

 private:
  const std::int64_t epoch_;
  const std::int64_t steps_;
  std::atomic<bool> closed_ = false;
  std::mutex mutex_;
  std::unique_ptr<Pass> pass_;  // none: closed
};

using FragmentTuple = std::tuple<std::int64_t, std::int64_t, std::string>;

std::shared_ptr<Shard> make_shard(const std::vector<FragmentTuple>& fragments, nb::object open,
                                  const nb::dict& ordering, const nb::dict& options) {
  data::Table table;
  for (const auto& [rows, bytes, name] : fragments) table.fragments.push_back({name, rows, bytes});
  table.source = std::make_shared<PythonSource>(std::move(open));
  table.layout = data::lay_out(table.fragments, struct_from<data::Ordering>(ordering, "Ordering"));
  return value_or_raise(Shard::make(std::move(table), struct_from<data::ShardOptions>(options, "ShardOptions")));
}

nb::dict stats_of(const Shard& shard) {
  return to_python(base::to_dict(unlocked([&] { return shard.stats(); })));
}

// One byte per row: 1 if random_sample() keeps it.
nb::bytes sampled(std::int64_t seed, std::int64_t first_row, std::int64_t rows, double fraction) {
  std::string mask(static_cast<std::size_t>(std::max<std::int64_t>(rows, 0)), '\0');
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::int64_t row = first_row + static_cast<std::int64_t>(i);
    mask[i] = data::samples(static_cast<std::uint64_t>(seed), row, fraction) ? 1 : 0;
  }
  return nb::bytes(mask.data(), mask.size());
}

}  // namespace

void bind_data(nb::module_& module) {
  module.attr("READ_RETRIES") = data::kReadRetries;
  module.def("sampled", &sampled, nb::arg("seed"), nb::arg("first_row"), nb::arg("rows"), nb::arg("fraction"),
             "A byte per row, 1 if random_sample() keeps it; first_row is an index in the dataset.");
  module.def(
      "finish_unused_dataset",
      [](const std::string& folder, const std::string& dataset, int rank, int attempt, std::int64_t epoch,
         std::int64_t row) {
        data::DigestContext context{.dataset = dataset};
        context.rank = rank;
        context.attempt = attempt;
        value_or_raise(data::DigestLog::finish_unused(folder, context, epoch, row));
      },
      nb::arg("folder"), nb::arg("dataset"), nb::arg("rank"), nb::arg("attempt"), nb::arg("epoch"), nb::arg("row"));
  module.def(
      "check_shard_options",
      [](const nb::dict& options) {
        return to_python(base::to_dict(struct_from<data::ShardOptions>(options, "ShardOptions")));
      },
      nb::arg("options"), "The same fields, complete; ConfigError names the one that is wrong.");
  nb::class_<Batch>(module, "DataBatch")
      .def_prop_ro("num_rows", &Batch::rows)
      .def_prop_ro("num_bytes", &Batch::bytes)
      .def("tensors", &tensors)
      .def(
          "__arrow_c_array__", [](const Batch& self, nb::handle) { return capsules_of(self.exported()); },
          nb::arg("requested_schema") = nb::none());
  nb::class_<RecordBatch>(module, "RecordBatch")
      .def("__arrow_c_array__", &RecordBatch::arrow_c_array, nb::arg("requested_schema") = nb::none());
  nb::class_<PythonPass>(module, "DataPass")
      .def_prop_ro("epoch", &PythonPass::epoch)
      .def_prop_ro("steps", &PythonPass::steps)
      .def("next", &PythonPass::next, nb::arg("timeout_s"))
      .def("reopen", &PythonPass::reopen)
      .def("close", &PythonPass::close);
  nb::class_<Shard>(module, "DataShard")
      .def_static("make", &make_shard, nb::arg("fragments"), nb::arg("open"), nb::arg("ordering"), nb::arg("options"))
      .def(
          "iterate",
          [](Shard& self, const nb::dict& options, int ahead) {
            const auto wanted = struct_from<IterBatchesOptions>(options, "IterBatchesOptions");
            return new PythonPass(value_or<ValueError>(unlocked([&] { return self.iterate(wanted, ahead); })));
          },
          nb::arg("options"), nb::arg("ahead") = 0)
      .def("used", &Shard::used, nb::arg("batches"), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("epoch", [](const Shard& self) { return unlocked([&] { return self.epoch(); }); })
      .def_prop_ro("rows", &Shard::rows)
      .def("state", [](const Shard& self) { return to_python(unlocked([&] { return self.state(); })); })
      .def("position", [](Shard& self) { return to_python(unlocked([&] { return self.position(); })); })
      .def("finish", &Shard::finish, nb::call_guard<nb::gil_scoped_release>())
      .def("load_state",
           [](Shard& self, nb::handle state) {
             const Dict given = to_dict(state, "state");
             value_or<ValueError>(unlocked([&] { return self.load_state(given); }));
           })
      .def("stats", &stats_of)
      .def("logged_rows", [](const Shard& self) { return unlocked([&] { return self.logged_rows(); }); });
}

}  // namespace trireme::python
