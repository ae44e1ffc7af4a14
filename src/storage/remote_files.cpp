#include "storage/remote_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "storage/disk_error.h"
#include "storage/local_files.h"
#include "storage/parallel.h"
#include "storage/paths.h"
#include "storage/posix_disk.h"
#include "storage/walk.h"

namespace trireme::storage {
namespace {

namespace fs = std::filesystem;

// Enough to saturate a connection to an object store without overloading it.
constexpr std::size_t kTransfers = 8;

// A temporary local file, removed by the destructor.
class Scratch {
 public:
  // Creates the file, so that later opens of its name find this file and not a link planted by another user.
  static base::Result<Scratch> make(const std::string& folder, mode_t mode) {
    while (true) {
      Scratch made(temporary_in(folder));
      const base::Fd file(::open(made.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
      if (file.valid()) return made;
      const int failure = errno;
      made.path_.clear();  // the file is not ours to remove
      if (failure != EEXIST) return failed("create a file in", folder, failure);
    }
  }
  Scratch(Scratch&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    std::error_code ignored;  // it may have been renamed
    if (!path_.empty()) fs::remove(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

base::Result<FileRecord> record_of(const std::string& local, const std::string& path) {
  std::error_code failure;
  FileRecord record{path, fs::file_size(local, failure), {}};
  if (failure) return removed_meanwhile(local);
  TRIREME_ASSIGN(record.xxh3, LocalFiles().checksum(local));
  return record;
}

}  // namespace

RemoteFiles::RemoteFiles(std::shared_ptr<FileSystem> file_system, std::string scheme, RetryPolicy policy)
    : file_system_(std::move(file_system)), scheme_(std::move(scheme)), policy_(std::move(policy)) {}

std::shared_ptr<Files> RemoteFiles::with_policy(const std::function<void(RetryPolicy&)>& change) const {
  RetryPolicy policy = policy_;
  change(policy);
  return std::make_shared<RemoteFiles>(file_system_, scheme_, std::move(policy));
}

base::Result<void> RemoteFiles::call(std::string_view doing, const std::string& path,
                                     const std::function<void()>& what) {
  return with_retries(policy_, fmt::format("{} {}", doing, describe(path)), what);
}

base::Result<void> RemoteFiles::call_on_existing(std::string_view doing, const std::string& path,
                                                 const std::function<void()>& what) {
  auto missing = [&]() -> base::Result<void> {
    bool there = true;
    auto asked = with_retries({.tries = 1}, "look", [&] { there = file_system_->exists(path); });
    if (asked && !there) return base::error("it does not exist");
    return {};
  };
  return with_retries(policy_, fmt::format("{} {}", doing, describe(path)), what, missing);
}

base::Result<bool> RemoteFiles::exists(const std::string& path) {
  bool there = false;
  TRIREME_TRY(call("access", path, [&] { there = file_system_->exists(path); }));
  return there;
}

base::Result<std::string> RemoteFiles::read(const std::string& path) {
  std::string content;
  TRIREME_TRY(call_on_existing("read", path, [&] { content = file_system_->read(path); }));
  return content;
}

base::Result<void> RemoteFiles::write_atomically(const std::string& path, std::string_view content) {
  return call("write", path, [&] { file_system_->write(path, content); });
}

base::Result<FileRecord> RemoteFiles::put_file(const std::string& local, const std::string& path,
                                               const std::string& target) {
  TRIREME_ASSIGN(auto record, record_of(local, path));
  std::error_code failure;
  auto gone = [&]() -> base::Result<void> {
    if (!fs::exists(local, failure)) return removed_meanwhile(local);
    return {};
  };
  const std::string remote = target + "/" + path;
  TRIREME_TRY(with_retries(
      policy_, fmt::format("upload {} to {}", local, describe(remote)), [&] { file_system_->upload(local, remote); },
      gone));
  if (fs::file_size(local, failure) == record.size && !failure) return record;
  return base::error("{} changed while it was being stored; write all files before report()", local);
}

base::Result<std::vector<FileRecord>> RemoteFiles::put_folder(const std::string& source, const std::string& target,
                                                              Take) {
  PosixDisk disk;
  TRIREME_ASSIGN(const auto files, walk(disk, source, Walk::kStore));
  // Object stores need no folders; other file systems need them before the files.
  std::set<std::string> folders{target};
  for (const auto& file : files) folders.insert((fs::path(target) / file.path).parent_path());
  for (const auto& folder : folders) TRIREME_TRY(make_folder(folder));
  std::vector<FileRecord> records(files.size());
  TRIREME_TRY(in_parallel(files.size(), kTransfers, [&](std::size_t i) -> base::Result<void> {
    TRIREME_ASSIGN(records[i], put_file(source + "/" + files[i].path, files[i].path, target));
    return {};
  }));
  return records;
}

base::Result<bool> RemoteFiles::same_folder(const std::string& source, const std::string&) {
  return LocalFiles().same_folder(source, "");
}

base::Result<std::vector<FileRecord>> RemoteFiles::adopt_folder(const std::string& folder) {
  TRIREME_ASSIGN(auto listed, list_files(folder));
  std::erase_if(listed, [](const auto& file) {
    return std::string_view(file.path).substr(file.path.rfind('/') + 1).starts_with(kOwnPrefix);
  });
  std::vector<FileRecord> records(listed.size());
  TRIREME_TRY(in_parallel(listed.size(), kTransfers, [&](std::size_t i) -> base::Result<void> {
    TRIREME_ASSIGN(auto digest, checksum(folder + "/" + listed[i].path));
    records[i] = {listed[i].path, listed[i].size, std::move(digest)};
    return {};
  }));
  return records;
}

base::Result<void> RemoteFiles::get_file(const std::string& folder, const FileRecord& wanted,
                                         const std::string& target) {
  TRIREME_TRY(check_relative(wanted.path), "{} cannot be read", describe(folder));
  const std::string remote = folder + "/" + wanted.path;
  const std::string local = target + "/" + wanted.path;
  std::error_code failure;
  fs::create_directories(fs::path(local).parent_path(), failure);
  if (failure) return failed("create the folder of", local, failure.value());
  TRIREME_ASSIGN(const Scratch scratch, Scratch::make(fs::path(local).parent_path(), 0666));
  TRIREME_TRY(call_on_existing("download", remote, [&] { file_system_->download(remote, scratch.path()); }));
  TRIREME_ASSIGN(const auto found, record_of(scratch.path(), wanted.path));
  if (found.size != wanted.size) {
    return base::error("{} is damaged: it has {}, but its manifest lists {}", describe(remote),
                       base::count_of(found.size, "byte"), wanted.size);
  }
  if (!wanted.xxh3.empty() && found.xxh3 != wanted.xxh3) {
    return base::error("{} is damaged: its XXH3 is {}, but its manifest lists {}", describe(remote), found.xxh3,
                       wanted.xxh3);
  }
  fs::rename(scratch.path(), local, failure);
  if (failure) return failed("rename a temporary file to", local, failure.value());
  return {};
}

base::Result<void> RemoteFiles::get_folder(const std::string& folder, const std::vector<FileRecord>& expected,
                                           const std::string& target) {
  TRIREME_TRY(LocalFiles().make_folder(target));
  return in_parallel(expected.size(), kTransfers, [&](std::size_t i) { return get_file(folder, expected[i], target); });
}

base::Result<std::string> RemoteFiles::checksum(const std::string& path) {
  std::error_code failure;
  const auto folder = fs::temp_directory_path(failure);
  if (failure) return base::error("could not read {}: $TMPDIR is not a folder", describe(path));
  TRIREME_ASSIGN(const Scratch scratch, Scratch::make(folder, 0600));
  TRIREME_TRY(call_on_existing("read", path, [&] { file_system_->download(path, scratch.path()); }));
  return LocalFiles().checksum(scratch.path());
}

base::Result<std::vector<FileEntry>> RemoteFiles::list_files(const std::string& folder) {
  std::vector<FileEntry> files;
  TRIREME_TRY(call("list", folder, [&] {
    files.clear();
    for (auto& file : file_system_->list_files(folder)) files.push_back({std::move(file.path), file.size});
  }));
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

base::Result<std::vector<std::string>> RemoteFiles::list_folders(const std::string& folder) {
  std::vector<std::string> folders;
  TRIREME_TRY(call("list", folder, [&] { folders = file_system_->list_folders(folder); }));
  std::sort(folders.begin(), folders.end());
  return folders;
}

base::Result<void> RemoteFiles::make_folder(const std::string& path) {
  return call("create the folder", path, [&] { file_system_->make_folder(path); });
}

base::Result<bool> RemoteFiles::move_folder(const std::string&, const std::string&) { return false; }

// Stores make accepted writes durable.
base::Result<void> RemoteFiles::sync_folder(const std::string&) { return {}; }

base::Result<void> RemoteFiles::remove_file(const std::string& path) {
  return call("remove", path, [&] { file_system_->remove_file(path); });
}

base::Result<void> RemoteFiles::remove_folder(const std::string& path) {
  return call("remove", path, [&] { file_system_->remove_folder(path); });
}

}  // namespace trireme::storage
