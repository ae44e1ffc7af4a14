#include "api/run.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "api/describe.h"
#include "api/progress.h"
#include "api/runtime.h"
#include "base/text.h"
#include "bindings.h"
#include "control/run_folder.h"
#include "control/run_registry.h"
#include "errors.h"
#include "fields.h"
#include "filesystem.h"
#include "unlocked.h"
#include "value.h"
#include "wire/message.h"

namespace trireme::python {
namespace {

nb::list to_python_list(const std::vector<Dict>& dicts) {
  nb::list made;
  for (const auto& dict : dicts) made.append(to_python(dict));
  return made;
}

Dict node_dict(const engine::NodeInfo& node) {
  List gpus;
  for (const auto& gpu : node.gpus) gpus.push_back(Dict{{"id", gpu.id}, {"type", gpu.type}});
  Dict made{{"id", node.id}, {"host", node.host}, {"cpus_declared", node.cpus_declared}};
  made["total"] = base::Codec<Resources>::to(node.total);
  made["available"] = base::Codec<Resources>::to(node.available);
  made["gpus"] = std::move(gpus);
  return made;
}

nb::dict read_run(const std::string& path, nb::object filesystem) {
  auto files = files_of(filesystem);
  struct Read {
    control::RunRecord record;
    std::vector<control::KeptCheckpoint> checkpoints;
    std::vector<std::string> damaged;
    control::ReturnValue returned;
  };
  auto read = [&]() -> base::Result<Read> {
    Read made;
    TRIREME_ASSIGN(made.record, control::read_run(*files, path));
    TRIREME_ASSIGN(made.checkpoints, control::read_checkpoints(*files, made.record, &made.damaged));
    TRIREME_ASSIGN(made.returned, control::read_return_value(*files, made.record));
    return made;
  };
  const auto [record, checkpoints, damaged, returned] = value_or_raise(unlocked(read));
  bool active = false;
  for (const auto& entry : control::RunRegistry().list_runs()) {
    active = active || (entry.path == record.path && control::is_active(entry));
  }
  const auto summary = control::summary(record, active, 0);
  nb::dict made;
  made["run"] = to_python(record.run);
  made["events"] = to_python_list(record.events);
  const auto last = control::last_metrics(record);
  made["last_metrics"] = last ? to_python(Value(*last)) : nb::none();
  made["metrics_history"] = to_python_list(control::metrics_history(record));
  made["metrics_of_all_ranks"] = to_python_list(control::metrics_of_all_ranks(record));
  made["checkpoints"] = to_python(Value(control::to_list(checkpoints, record.path)));
  made["damaged"] = to_python(Value(List(damaged.begin(), damaged.end())));
  made["state"] = summary.state;
  made["error"] = summary.error ? to_python(Value(*summary.error)) : nb::none();
  made["return_value"] = to_python(returned.value);
  made["return_value_pickled"] = returned.pickled;
  return made;
}

// The runtime, and the interpreter of its workers.
struct PythonRuntime {
  explicit PythonRuntime(std::vector<std::string> command) : python(command), runtime(std::move(command)) {}

  std::vector<std::string> python;
  api::Runtime runtime;
};

void bind_runtime(nb::module_& module) {
  nb::class_<PythonRuntime>(module, "Runtime",
                            "What the process keeps between runs: capacity and the warm Python process.")
      .def(nb::init<std::vector<std::string>>(), nb::arg("python"))
      .def(
          "init",
          [](PythonRuntime& self, std::optional<double> num_cpus, std::optional<double> num_gpus,
             std::optional<Resources> resources, std::optional<std::string> engine,
             std::optional<nb::dict> engine_options) {
            Dict options;
            if (engine_options) options = python::to_dict(*engine_options, "engine_options");
            value_or<ConfigError>(unlocked([&] {
              return self.runtime.init(
                  {num_cpus, num_gpus, std::move(resources), engine.value_or(""), std::move(options)});
            }));
          },
          nb::arg("num_cpus") = nb::none(), nb::arg("num_gpus") = nb::none(), nb::arg("resources") = nb::none(),
          nb::arg("engine") = nb::none(), nb::arg("engine_options") = nb::none())
      .def(
          "warm_up",
          [](PythonRuntime& self, std::vector<std::string> preload) {
            value_or<ConfigError>(self.runtime.warm_up(std::move(preload)));
          },
          nb::arg("preload"))
      .def(
          "set_capacity",
          [](PythonRuntime& self, std::optional<double> num_cpus, std::optional<double> num_gpus,
             std::optional<Resources> resources) {
            return to_python(value_or<ConfigError>(unlocked([&] {
              return self.runtime.set_capacity({num_cpus, num_gpus, resources.value_or(Resources())});
            })));
          },
          nb::arg("num_cpus") = nb::none(), nb::arg("num_gpus") = nb::none(), nb::arg("resources") = nb::none())
      .def("nodes",
           [](PythonRuntime& self) {
             nb::list nodes;
             for (const auto& node : value_or<ConfigError>(self.runtime.engine())->nodes()) {
               nodes.append(to_python(node_dict(node)));
             }
             return nodes;
           })
      .def(
          "shutdown", [](PythonRuntime& self) { self.runtime.shutdown(); }, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_run(nb::module_& module) {
  bind_runtime(module);
  nb::class_<api::Run>(module, "Run", "One run, from the driver's side.")
      .def(nb::new_([](PythonRuntime& runtime, const nb::dict& given, nb::object filesystem) {
             auto spec = struct_from<api::RunSpec>(given, "RunSpec");
             spec.argv = runtime.python;
             spec.argv.insert(spec.argv.end(), {"-m", "trireme._worker"});
             auto files = filesystem.is_none() ? nullptr : files_of(filesystem);
             return value_or<ConfigError>(
                 unlocked([&] { return api::Run::prepare(runtime.runtime, std::move(spec), std::move(files)); }));
           }),
           nb::arg("runtime"), nb::arg("spec"), nb::arg("filesystem") = nb::none(), nb::keep_alive<0, 1>())
      .def("start", [](api::Run& self) { value_or_raise(unlocked([&] { return self.start(); })); })
      .def(
          "next",
          [](api::Run& self, double timeout_s) {
            return to_python_list(unlocked([&] { return self.next(base::Seconds(timeout_s)); }));
          },
          nb::arg("timeout_s"))
      .def_prop_ro("finished", &api::Run::finished)
      .def("stop", &api::Run::stop, nb::arg("why"), nb::arg("hard") = false)
      .def("announce_preemption", &api::Run::announce_preemption, nb::arg("ranks"), nb::arg("seconds"), nb::arg("why"))
      .def("outcome",
           [](api::Run& self) { return to_python(api::outcome_dict(unlocked([&] { return self.wait(); }), self)); })
      .def(
          "finish_validation",
          [](api::Run& self, std::string name, const std::string& status, const nb::dict& metrics,
             std::string message) {
            const auto parsed = value_or<ValueError>(checkpoint::status_from(status));
            self.finish_validation({std::move(name), parsed, python::to_dict(metrics, "metrics"), std::move(message)});
          },
          nb::arg("name"), nb::arg("status"), nb::arg("metrics"), nb::arg("message") = "")
      .def(
          "close", [](api::Run& self) { self.close(); }, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("name", &api::Run::name)
      .def_prop_ro("id", &api::Run::id)
      .def_prop_ro("path", &api::Run::path)
      .def_prop_ro("storage_path", &api::Run::storage_path);
  nb::class_<api::Progress>(module, "Progress", "The progress of a run as one line.")
      .def(nb::init<>())
      .def(
          "count", [](api::Progress& self, nb::dict event) { self.count(python::to_dict(event, "event")); },
          nb::arg("event"))
      .def_prop_ro("reports", &api::Progress::reports)
      .def("text", &api::Progress::text, nb::arg("seconds"));
  module.def(
      "describe_event", [](nb::dict event) { return api::describe(python::to_dict(event, "event")); },
      nb::arg("event"));
  module.def(
      "result_table", [](nb::dict outcome) { return api::result_table(python::to_dict(outcome, "outcome")); },
      nb::arg("outcome"));
  module.def(
      "metrics_text", [](nb::dict metrics) { return api::metrics_text(python::to_dict(metrics, "metrics")); },
      nb::arg("metrics"), "The first few metrics, for one line.");
  module.def("count_of", &base::count_of, nb::arg("count"), nb::arg("noun"), "'1 worker', '4 workers'.");
  module.def(
      "check_metrics", [](nb::dict metrics) { return to_python(python::to_dict(metrics, "metrics")); },
      nb::arg("metrics"), "What report() would store; ValueError names the key that cannot be stored.");
  module.def("read_run", &read_run, nb::arg("path"), nb::arg("filesystem") = nb::none());
  module.def("describe_messages", [] { return to_python(wire::describe_messages()); });
}

}  // namespace trireme::python
