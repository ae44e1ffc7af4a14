#include "worker/session.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <csignal>

#include "bindings.h"
#include "errors.h"
#include "filesystem.h"
#include "state.h"
#include "unlocked.h"
#include "value.h"
#include "worker/process.h"

namespace trireme::python {
namespace {

using worker::Session;

std::unique_ptr<Session> join(const std::string& ticket) {
  auto parsed = value_or_raise(worker::parse_ticket(ticket));
  return value_or_raise(unlocked([&] { return Session::join(parsed); }));
}

// The user's checkpoint_upload_fn. An exception is a failure of the upload.
struct PythonUpload {
  std::shared_ptr<nb::object> function;

  explicit PythonUpload(nb::object given) : function(kept(std::move(given))) {}

  base::Result<std::string> operator()(const std::string& name) const {
    nb::gil_scoped_acquire lock;
    try {
      return nb::cast<std::string>((*function)(name));
    } catch (const nb::python_error& raised) {
      return base::error("checkpoint_upload_fn: {}", raised.what());
    }
  }
};

// Python installs it for every handler that is a Python function, and calls the function later, in the main thread.
worker::SignalHandler handler_of_python() {
  const nb::module_ module = nb::module_::import_("signal");
  const nb::object before = module.attr("signal")(SIGTERM, nb::cpp_function([](nb::args) {}));
  struct sigaction found {};
  ::sigaction(SIGTERM, nullptr, &found);
  module.attr("signal")(SIGTERM, before.is_none() ? module.attr("SIG_DFL") : before);  // None: not set from Python
  return found.sa_handler;
}

nb::object report(Session& self, const nb::dict& metrics, const std::optional<std::string>& checkpoint,
                  const std::optional<std::string>& checkpoint_dir_name, const std::string& mode, bool delete_local,
                  nb::object state, nb::object upload, nb::object validation, nb::object positions, nb::object data) {
  Metrics converted = to_dict(metrics, "metrics");
  worker::ReportOptions options{.checkpoint_name = checkpoint_dir_name};
  if (!validation.is_none()) options.validation = to_value(validation, "validation");
  if (!positions.is_none()) options.positions = to_dict(nb::cast<nb::dict>(positions), "positions");
  if (!data.is_none()) options.data = to_dict(nb::cast<nb::dict>(data), "data");
  std::optional<worker::CheckpointSource> source;
  if (checkpoint || !state.is_none() || !upload.is_none()) {
    source.emplace();
    source->mode = value_or<ValueError>(worker::upload_mode_from(mode));
    source->folder = checkpoint.value_or("");
    source->delete_folder = delete_local;
    if (!state.is_none()) source->state = to_state(state);
    if (!upload.is_none()) source->upload = PythonUpload(std::move(upload));
  }
  auto path = value_or_raise(
      unlocked([&] { return self.report(std::move(converted), std::move(source), std::move(options)); }));
  if (!path) return nb::none();
  return nb::str(path->data(), path->size());
}

nb::object list_checkpoints(Session& self, bool validated, std::optional<double> timeout_s) {
  std::optional<base::Seconds> timeout;
  if (timeout_s) timeout = base::Seconds(*timeout_s);
  return to_python(Value(value_or_raise(unlocked([&] { return self.list_checkpoints(validated, timeout); }))));
}

nb::object preemption(Session& self) {
  auto known = self.preemption();
  if (!known) return nb::none();
  return to_python(worker::to_dict(*known));
}

// The signal is sent to the calling thread, which runs the user's function.
void interrupt_by(Session& self, int signal) {
  self.set_interrupt([thread = ::pthread_self(), signal] { ::pthread_kill(thread, signal); });
}

// Called on a thread of the core. Native code of another thread that keeps the GIL delays it.
void set_on_cancel(Session& self, nb::object on_cancel) {
  if (on_cancel.is_none()) return unlocked([&] { self.set_on_cancel({}); });
  auto hook = [function = kept(std::move(on_cancel))] {
    nb::gil_scoped_acquire lock;
    try {
      (*function)();
    } catch (nb::python_error& raised) {
      raised.discard_as_unraisable("on_cancel()");
    }
  };
  unlocked([&] { self.set_on_cancel(std::move(hook)); });
}

void fail(Session& self, std::string error_type, std::string message, std::string traceback,
          std::optional<nb::bytes> exception) {
  wire::Failed failure;
  failure.error_type = std::move(error_type);
  failure.message = std::move(message);
  failure.traceback = std::move(traceback);
  if (exception) failure.exception = Bytes{from_bytes(*exception)};
  unlocked([&] { self.fail(std::move(failure)); });
}

void bind_store(nb::class_<Session>& session) {
  session
      .def(
          "store_set",
          [](Session& self, const std::string& key, const nb::bytes& value) {
            std::string data = from_bytes(value);
            value_or_raise(unlocked([&] { return self.store_set(key, std::move(data)); }));
          },
          nb::arg("key"), nb::arg("value"))
      .def(
          "store_get",
          [](Session& self, const std::string& key, double timeout_s) {
            return to_bytes(value_or_raise(unlocked([&] { return self.store_get(key, base::Seconds(timeout_s)); })));
          },
          nb::arg("key"), nb::arg("timeout_s"))
      .def(
          "store_add",
          [](Session& self, const std::string& key, std::int64_t amount) {
            return value_or_raise(unlocked([&] { return self.store_add(key, amount); }));
          },
          nb::arg("key"), nb::arg("amount"))
      .def(
          "store_wait",
          [](Session& self, const std::vector<std::string>& keys, double timeout_s) {
            value_or_raise(unlocked([&] { return self.store_wait(keys, base::Seconds(timeout_s)); }));
          },
          nb::arg("keys"), nb::arg("timeout_s"))
      .def(
          "store_multi_get",
          [](Session& self, const std::vector<std::string>& keys, double timeout_s) {
            nb::list values;
            for (const auto& value :
                 value_or_raise(unlocked([&] { return self.store_multi_get(keys, base::Seconds(timeout_s)); }))) {
              values.append(to_bytes(value));
            }
            return values;
          },
          nb::arg("keys"), nb::arg("timeout_s"))
      .def(
          "store_append",
          [](Session& self, const std::string& key, const nb::bytes& value) {
            std::string data = from_bytes(value);
            value_or_raise(unlocked([&] { return self.store_append(key, std::move(data)); }));
          },
          nb::arg("key"), nb::arg("value"))
      .def(
          "store_check",
          [](Session& self, const std::vector<std::string>& keys) {
            return value_or_raise(unlocked([&] { return self.store_check(keys); }));
          },
          nb::arg("keys"))
      .def(
          "store_delete",
          [](Session& self, const std::string& key) {
            return value_or_raise(unlocked([&] { return self.store_delete(key); }));
          },
          nb::arg("key"))
      .def(
          "store_compare_set",
          [](Session& self, const std::string& key, const nb::bytes& expected, const nb::bytes& desired) {
            std::string old_data = from_bytes(expected);
            std::string new_data = from_bytes(desired);
            return to_bytes(value_or_raise(
                unlocked([&] { return self.store_compare_set(key, std::move(old_data), std::move(new_data)); })));
          },
          nb::arg("key"), nb::arg("expected"), nb::arg("desired"))
      .def("store_num_keys",
           [](Session& self) { return value_or_raise(unlocked([&] { return self.store_count(); })); });
}

}  // namespace

void bind_session(nb::module_& module) {
  nb::class_<Session> session(module, "Session", "A worker's connection to its run.");
  session.def(nb::new_(&join), nb::arg("ticket"))
      .def("wait_start",
           [](Session& self) {
             auto start = value_or_raise(unlocked([&] { return self.wait_start(); }));
             return to_python(base::to_dict(start));
           })
      .def(
          "entered", [](Session& self, std::string holds) { self.entered(std::move(holds)); }, nb::arg("holds") = "")
      .def(
          "set_filesystem", [](Session& self, nb::object filesystem) { self.set_files(files_of(filesystem)); },
          nb::arg("filesystem"))
      .def("report", &report, nb::arg("metrics"), nb::arg("checkpoint") = nb::none(),
           nb::arg("checkpoint_dir_name") = nb::none(), nb::arg("mode") = "SYNC", nb::arg("delete_local") = false,
           nb::arg("state") = nb::none(), nb::arg("upload") = nb::none(), nb::arg("validation") = nb::none(),
           nb::arg("positions") = nb::none(), nb::arg("data") = nb::none())
      .def("newest_checkpoint", &Session::newest_checkpoint)
      .def("list_checkpoints", &list_checkpoints, nb::arg("validated"), nb::arg("timeout_s") = nb::none())
      .def(
          "finish",
          [](Session& self, nb::object value, bool pickled) {
            Value returned = to_value(value, "the return value");
            value_or_raise(unlocked([&] { return self.finish(std::move(returned), pickled); }));
          },
          nb::arg("return_value") = nb::none(), nb::arg("pickled") = false)
      .def("fail", &fail, nb::arg("error_type"), nb::arg("message"), nb::arg("traceback"),
           nb::arg("exception") = nb::none())
      .def("barrier", [](Session& self) { value_or_raise(unlocked([&] { return self.barrier(); })); })
      .def(
          "broadcast",
          [](Session& self, std::optional<nb::bytes> data) {
            std::optional<std::string> given;
            if (data) given = from_bytes(*data);
            return to_bytes(value_or_raise(unlocked([&] { return self.broadcast(std::move(given)); })));
          },
          nb::arg("data") = nb::none())
      .def(
          "set_collective_timeout",
          [](Session& self, double seconds) { self.set_collective_timeout(base::Seconds(seconds)); },
          nb::arg("seconds"))
      .def("interrupt_by", &interrupt_by, nb::arg("signal"),
           "Sets the signal that this thread receives repeatedly until it leaves a cancelled function.")
      .def("set_on_cancel", &set_on_cancel, nb::arg("on_cancel").none(),
           "Sets the function that a separate thread calls as soon as this attempt is cancelled.")
      .def_prop_ro("cancelled", &Session::cancelled)
      .def_prop_ro("may_decline", &Session::may_decline)
      .def("wait_for_cancel", &Session::wait_for_cancel, nb::call_guard<nb::gil_scoped_release>(),
           "Waits for the decision and returns whether another attempt follows.")
      .def("become_ready", &Session::become_ready, nb::call_guard<nb::gil_scoped_release>())
      .def("preemption", &preemption)
      .def(
          "watch_termination", [](Session& self) { worker::watch_termination(self, handler_of_python()); },
          "To be called in the main thread, before anything else sets a handler of SIGTERM.")
      .def_prop_ro("stop_requested", &Session::stop_requested);
  module.def(
      "redirect_output", [](const std::string& path) { value_or_raise(worker::redirect_output(path)); },
      nb::arg("path"));
  bind_store(session);
}

}  // namespace trireme::python
