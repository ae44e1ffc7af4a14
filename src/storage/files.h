#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The storage for checkpoints: a local folder (local_files.h) or remote storage (remote_files.h), behind one interface
// so that the commit protocol is written once. Thread-safe.

namespace trireme::storage {

struct RetryPolicy;

struct FileEntry {
  std::string path;  // relative to the folder
  std::uint64_t size = 0;
};

// The entry of a file in a manifest.
struct FileRecord {
  std::string path;  // relative to the checkpoint's folder
  std::uint64_t size = 0;
  std::string xxh3;  // 64-bit XXH3 as 16 hex digits, as printed by `xxhsum -H3`; empty: unknown, not compared

  bool operator==(const FileRecord&) const = default;
};

enum class Take {
  kCopy,
  kMove,  // the source may be removed: renames if possible
};

class Files {
 public:
  virtual ~Files() = default;

  // Whether paths are local paths.
  virtual bool local() const = 0;
  // For messages: "/data/run" or "s3://bucket/run".
  virtual std::string describe(const std::string& path) const = 0;

  // The same storage with a policy modified by `change` (retry.h). Local storage does not retry.
  virtual std::shared_ptr<Files> with_policy(const std::function<void(RetryPolicy&)>& change) const = 0;

  virtual base::Result<bool> exists(const std::string& path) = 0;
  virtual base::Result<std::string> read(const std::string& path) = 0;
  // Atomic, even in a crash: readers see either the old or the new content.
  virtual base::Result<void> write_atomically(const std::string& path, std::string_view content) = 0;

  // Stores the files of a local folder durably in `target`, which is created if necessary; other files in it stay. Each
  // file appears under its name only when it is complete. Returns the stored files, sorted by path. Here and in
  // adopt_folder, files whose names start with ".trireme_" are internal and skipped.
  virtual base::Result<std::vector<FileRecord>> put_folder(const std::string& source, const std::string& target,
                                                           Take take) = 0;
  // Whether `source` is `target` itself. An error if `source` is not a local folder.
  virtual base::Result<bool> same_folder(const std::string& source, const std::string& target) = 0;
  // Like put_folder for files that are already in `folder`: computes their checksums and makes them durable.
  virtual base::Result<std::vector<FileRecord>> adopt_folder(const std::string& folder) = 0;
  // Copies to a local folder. A file that differs from `expected` is an error that names the file.
  virtual base::Result<void> get_folder(const std::string& folder, const std::vector<FileRecord>& expected,
                                        const std::string& target) = 0;
  virtual base::Result<std::string> checksum(const std::string& path) = 0;

  // All files below the folder, recursively, sorted by path.
  virtual base::Result<std::vector<FileEntry>> list_files(const std::string& folder) = 0;
  // Names of the direct subfolders, sorted.
  virtual base::Result<std::vector<std::string>> list_folders(const std::string& folder) = 0;
  virtual base::Result<void> make_folder(const std::string& path) = 0;
  // Atomic and durable. Returns false and does nothing if the storage cannot move folders, `from` does not exist or
  // `to` has content.
  virtual base::Result<bool> move_folder(const std::string& from, const std::string& to) = 0;
  // After this, created, renamed and removed entries survive a crash.
  virtual base::Result<void> sync_folder(const std::string& path) = 0;
  // Removing a missing file or folder is not an error.
  virtual base::Result<void> remove_file(const std::string& path) = 0;
  virtual base::Result<void> remove_folder(const std::string& path) = 0;
};

}  // namespace trireme::storage
