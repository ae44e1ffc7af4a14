#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The interface below LocalFiles: the operations of a disk, about one system call each. posix_disk.h is the real disk;
// tests/unit/storage/memory_disk.h simulates failures and crashes.
//
// All methods return 0 or an errno. The caller turns it into a message, which depends on what it was doing.

namespace trireme::storage {

enum class Kind { kFile, kFolder, kLink, kOther };

struct Status {
  Kind kind = Kind::kOther;
  std::uint64_t size = 0;
  std::uint64_t names = 1;                       // hard links
  std::pair<std::uint64_t, std::uint64_t> id{};  // device and inode: equal for two paths to the same file
};

class OpenFile {
 public:
  virtual ~OpenFile() = default;

  // `got` is 0 at the end of the file.
  [[nodiscard]] virtual int read(char* buffer, std::size_t size, std::size_t& got) = 0;
  // Appends all bytes.
  [[nodiscard]] virtual int write(std::string_view bytes) = 0;
  // Starts the writeback that sync() waits for, so that the disk works while the caller computes.
  virtual void start_sync() = 0;
  // After this, the content survives a crash. The name does not until its folder is synced too.
  [[nodiscard]] virtual int sync() = 0;
  // NFS reports a full disk only here.
  [[nodiscard]] virtual int close() = 0;
};

class OpenFolder {
 public:
  virtual ~OpenFolder() = default;

  // After this, the direct entries of the folder survive a crash.
  [[nodiscard]] virtual int sync() = 0;
  // The same for everything on its file system. Reports all errors since the folder was opened.
  [[nodiscard]] virtual int sync_all() = 0;
};

// Thread-safe; open files and folders are not.
class Disk {
 public:
  virtual ~Disk() = default;

  [[nodiscard]] virtual int open(const std::string& path, std::unique_ptr<OpenFile>& file) = 0;
  // EEXIST if the path exists.
  [[nodiscard]] virtual int create(const std::string& path, std::unique_ptr<OpenFile>& file) = 0;
  [[nodiscard]] virtual int open_folder(const std::string& path, std::unique_ptr<OpenFolder>& folder) = 0;

  // Replaces a file atomically. ENOTEMPTY or EEXIST for a folder with content.
  [[nodiscard]] virtual int rename(const std::string& from, const std::string& to) = 0;
  // Creates a hard link. EXDEV, EPERM and similar if the file system does not support it.
  [[nodiscard]] virtual int link(const std::string& from, const std::string& to) = 0;
  [[nodiscard]] virtual int remove_file(const std::string& path) = 0;
  [[nodiscard]] virtual int make_folder(const std::string& path) = 0;
  [[nodiscard]] virtual int remove_folder(const std::string& path) = 0;  // must be empty

  [[nodiscard]] virtual int list(const std::string& folder, std::vector<std::string>& names) = 0;
  // `look` is lstat(), `look_through` is stat().
  [[nodiscard]] virtual int look(const std::string& path, Status& status) = 0;
  [[nodiscard]] virtual int look_through(const std::string& path, Status& status) = 0;
};

}  // namespace trireme::storage
