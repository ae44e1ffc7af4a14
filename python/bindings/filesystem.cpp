#include "filesystem.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "checkpoint/commit.h"
#include "checkpoint/download.h"
#include "checkpoint/shared_download.h"
#include "errors.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "trireme/filesystem.h"
#include "unlocked.h"
#include "value.h"
#include "worker/driver_file_system.h"

namespace trireme::python {
namespace {

// Converts a Python exception to the C++ exception that the core expects, while the GIL is still held.
template <typename Call>
auto translated(Call call) {
  try {
    return call();
  } catch (const nb::python_error& raised) {
    throw std::runtime_error(nb::cast<std::string>(nb::str(raised.value())));
  }
}

// Called by threads of the core; each call acquires the GIL.
class PythonFileSystem final : public FileSystem {
 public:
  explicit PythonFileSystem(nb::object object) : object_(std::move(object)) {}
  ~PythonFileSystem() override {
    nb::gil_scoped_acquire lock;
    object_.reset();
  }

  std::string type_name() const override { return ask<std::string>("type_name"); }
  bool exists(const std::string& path) override { return ask<bool>("exists", path); }
  std::string read(const std::string& path) override {
    nb::gil_scoped_acquire lock;
    return translated([&] { return from_bytes(nb::cast<nb::bytes>(object_.attr("read")(path))); });
  }
  void write(const std::string& path, std::string_view content) override {
    nb::gil_scoped_acquire lock;
    translated([&] { object_.attr("write")(path, nb::bytes(content.data(), content.size())); });
  }
  void upload(const std::string& local_file, const std::string& path) override { tell("upload", local_file, path); }
  void download(const std::string& path, const std::string& local_file) override { tell("download", path, local_file); }
  std::vector<StoredFile> list_files(const std::string& folder) override {
    std::vector<StoredFile> files;
    for (auto& [path, size] : ask<std::vector<std::pair<std::string, std::uint64_t>>>("list_files", folder)) {
      files.push_back({std::move(path), size});
    }
    return files;
  }
  std::vector<std::string> list_folders(const std::string& folder) override {
    return ask<std::vector<std::string>>("list_folders", folder);
  }
  void make_folder(const std::string& path) override { tell("make_folder", path); }
  void remove_file(const std::string& path) override { tell("remove_file", path); }
  void remove_folder(const std::string& path) override { tell("remove_folder", path); }

 private:
  template <typename T, typename... Arguments>
  T ask(const char* method, const Arguments&... arguments) const {
    nb::gil_scoped_acquire lock;
    return translated([&] { return nb::cast<T>(object_.attr(method)(arguments...)); });
  }

  template <typename... Arguments>
  void tell(const char* method, const Arguments&... arguments) {
    nb::gil_scoped_acquire lock;
    translated([&] { object_.attr(method)(arguments...); });
  }

  nb::object object_;
};

// The storage of checkpoints.
struct Storage {
  std::shared_ptr<storage::Files> files;  // shared with downloads that are in use
};

// The run's folder on the driver's machine, with the methods of ArrowFiles that checkpoints use.
struct DriverFiles {
  std::shared_ptr<worker::DriverFileSystem> files;  // shared with the session
};

std::optional<DriverFiles> driver_files() {
  auto files = worker::driver_file_system();
  if (!files) return std::nullopt;
  return DriverFiles{std::move(files)};
}

void bind_driver_files(nb::module_& module) {
  nb::class_<DriverFiles>(module, "DriverFiles", "Files of the driver's machine, for a node that does not see them.")
      .def("type_name", [](const DriverFiles& self) { return self.files->type_name(); })
      .def(
          "describe",
          [](const DriverFiles&, const std::string& path) {
            return fmt::format("{}://{}", worker::DriverFileSystem::kScheme, path);
          },
          nb::arg("path"))
      .def(
          "exists",
          [](const DriverFiles& self, const std::string& path) {
            return unlocked([&] { return self.files->exists(path); });
          },
          nb::arg("path"))
      .def(
          "read",
          [](const DriverFiles& self, const std::string& path) {
            if (!unlocked([&] { return self.files->exists(path); })) {
              PyErr_SetObject(PyExc_FileNotFoundError, nb::str(path.c_str()).ptr());
              throw nb::python_error();
            }
            return to_bytes(unlocked([&] { return self.files->read(path); }));
          },
          nb::arg("path"))
      .def(
          "write",
          [](const DriverFiles& self, const std::string& path, const nb::bytes& content) {
            const std::string copied = from_bytes(content);
            unlocked([&] { self.files->write(path, copied); });
          },
          nb::arg("path"), nb::arg("content"))
      .def(
          "list_files",
          [](const DriverFiles& self, const std::string& folder) {
            std::vector<std::pair<std::string, std::uint64_t>> files;
            for (auto& file : unlocked([&] { return self.files->list_files(folder); })) {
              files.emplace_back(std::move(file.path), file.size);
            }
            return files;
          },
          nb::arg("folder"))
      .def("__eq__",
           [](const DriverFiles& self, nb::handle other) {
             return nb::isinstance<DriverFiles>(other) && nb::cast<DriverFiles&>(other).files == self.files;
           })
      .def("__hash__", [](const DriverFiles& self) { return reinterpret_cast<std::intptr_t>(self.files.get()); });
  module.def("driver_files", &driver_files, "None: this process sees the files of the driver's machine.");
}

// A download while Python uses it.
struct SharedFolder {
  std::optional<checkpoint::SharedDownload> download;
  std::string folder;
};

base::Result<std::optional<checkpoint::Committed>> read_committed(storage::Files& files, const std::string& path) {
  const std::string manifest = path + "/" + checkpoint::kManifestName;
  TRIREME_ASSIGN(bool there, files.exists(manifest));
  if (!there) return std::optional<checkpoint::Committed>();
  TRIREME_ASSIGN(auto text, files.read(manifest));
  TRIREME_ASSIGN(auto decoded, checkpoint::decode_manifest(text), "{}", files.describe(manifest));
  return std::optional(checkpoint::Committed{path.substr(path.rfind('/') + 1), path, std::move(decoded)});
}

nb::object read_manifest(const Storage& self, const std::string& path) {
  auto committed = value_or_raise(unlocked([&] { return read_committed(*self.files, path); }));
  if (!committed) return nb::none();
  const auto& manifest = committed->manifest;
  Dict made{{"index", manifest.index}, {"attempt", manifest.attempt}, {"time", manifest.time}};
  made["metrics"] = manifest.metrics;
  made["status"] = checkpoint::to_string(manifest.status);
  made["positions"] = manifest.positions;
  made["files"] = checkpoint::to_list(manifest.files);
  return to_python(made);
}

void verify(const Storage& self, const std::string& path) {
  value_or_raise(unlocked([&]() -> base::Result<void> {
    TRIREME_ASSIGN(auto committed, read_committed(*self.files, path));
    if (!committed) return base::error("{} is not a committed checkpoint: no manifest", self.files->describe(path));
    return checkpoint::verify(*self.files, *committed, true);
  }));
}

}  // namespace

std::shared_ptr<storage::Files> files_of(nb::handle filesystem) {
  if (filesystem.is_none()) return std::make_shared<storage::LocalFiles>();
  if (nb::isinstance<DriverFiles>(filesystem)) {
    return std::make_shared<storage::RemoteFiles>(nb::cast<DriverFiles&>(filesystem).files,
                                                  worker::DriverFileSystem::kScheme);
  }
  auto adapter = std::make_shared<PythonFileSystem>(nb::borrow(filesystem));
  std::string scheme = adapter->type_name();
  return std::make_shared<storage::RemoteFiles>(std::move(adapter), std::move(scheme));
}

void bind_filesystem(nb::module_& module) {
  bind_driver_files(module);
  nb::class_<Storage>(module, "Storage", "The storage of checkpoints: local folders or a remote filesystem.")
      .def(nb::new_([](nb::object filesystem) { return std::make_unique<Storage>(Storage{files_of(filesystem)}); }),
           nb::arg("filesystem") = nb::none())
      .def(
          "download",
          [](const Storage& self, const std::string& path, const std::string& target) {
            value_or_raise(unlocked([&] { return checkpoint::download(*self.files, path, target); }));
          },
          nb::arg("path"), nb::arg("target"), "Copies a checkpoint; verifies checksums if it has a manifest.")
      .def(
          "acquire",
          [](const Storage& self, const std::string& path) {
            auto download =
                value_or_raise(unlocked([&] { return checkpoint::SharedDownload::open(*self.files, path); }));
            const std::string folder = download.folder();
            return std::make_unique<SharedFolder>(SharedFolder{std::move(download), folder});
          },
          nb::arg("path"), "A local copy shared by the processes of this machine.")
      .def("read_manifest", &read_manifest, nb::arg("path"), "None if the folder has no manifest.")
      .def("verify", &verify, nb::arg("path"), "Raises an error if a file is missing or changed.");
  nb::class_<SharedFolder>(module, "SharedFolder")
      .def_ro("folder", &SharedFolder::folder)
      .def(
          "release", [](SharedFolder& self) { self.download.reset(); }, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace trireme::python
