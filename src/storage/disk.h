#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The seam under LocalFiles: what a disk can do, about one system call each. posix_disk.h is the real one,
// memory_disk.h one that fails and crashes when told to.
//
// Everything returns 0 or an errno: what to tell people depends on what the caller was about to do.

namespace trireme::storage {

enum class Kind { kFile, kFolder, kLink, kOther };

struct Status {
  Kind kind = Kind::kOther;
  std::uint64_t size = 0;
  std::uint64_t names = 1;                       // hard links
  std::pair<std::uint64_t, std::uint64_t> id{};  // device and inode: equal for two paths to the same thing
};

class OpenFile {
 public:
  virtual ~OpenFile() = default;

  // `got` is 0 at the end of the file.
  [[nodiscard]] virtual int read(char* buffer, std::size_t size, std::size_t& got) = 0;
  // All of it, at the end of what was written before.
  [[nodiscard]] virtual int write(std::string_view bytes) = 0;
  // Begins what sync() waits for, so that the disk works while the caller computes.
  virtual void start_sync() = 0;
  // The content survives a crash after this; the name does not unless its folder is synced too.
  [[nodiscard]] virtual int sync() = 0;
  // NFS tells of a full disk only here.
  [[nodiscard]] virtual int close() = 0;
};

class OpenFolder {
 public:
  virtual ~OpenFolder() = default;

  // The names in it, one level, survive a crash after this.
  [[nodiscard]] virtual int sync() = 0;
  // So does everything on its file system; errors since the folder was opened are told.
  [[nodiscard]] virtual int sync_all() = 0;
};

// Safe to use from several threads; the open files and folders are not.
class Disk {
 public:
  virtual ~Disk() = default;

  [[nodiscard]] virtual int open(const std::string& path, std::unique_ptr<OpenFile>& file) = 0;
  // EEXIST where something is there.
  [[nodiscard]] virtual int create(const std::string& path, std::unique_ptr<OpenFile>& file) = 0;
  [[nodiscard]] virtual int open_folder(const std::string& path, std::unique_ptr<OpenFolder>& folder) = 0;

  // Replaces a file in one step; ENOTEMPTY or EEXIST for a folder with content.
  [[nodiscard]] virtual int rename(const std::string& from, const std::string& to) = 0;
  // A second name for a file. EXDEV, EPERM and the like where the file system cannot.
  [[nodiscard]] virtual int link(const std::string& from, const std::string& to) = 0;
  [[nodiscard]] virtual int remove_file(const std::string& path) = 0;
  [[nodiscard]] virtual int make_folder(const std::string& path) = 0;
  [[nodiscard]] virtual int remove_folder(const std::string& path) = 0;  // an empty one

  [[nodiscard]] virtual int list(const std::string& folder, std::vector<std::string>& names) = 0;
  // `look` stops at a link, `look_through` goes where it leads.
  [[nodiscard]] virtual int look(const std::string& path, Status& status) = 0;
  [[nodiscard]] virtual int look_through(const std::string& path, Status& status) = 0;
};

}  // namespace trireme::storage
