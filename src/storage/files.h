#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Where a run keeps its checkpoints: a folder of this machine (local_files.h), or a store elsewhere (remote_files.h).
// One interface, so that the commit protocol is written once. Safe to use from several threads.

namespace trireme::storage {

struct RetryPolicy;

struct FileEntry {
  std::string path;  // relative to the folder
  std::uint64_t size = 0;
};

// What a file is known by in a manifest.
struct FileRecord {
  std::string path;  // relative to the checkpoint's folder
  std::uint64_t size = 0;
  std::string xxh3;  // XXH3 of 64 bits as 16 hex digits, what `xxhsum -H3` prints; empty: not known, not compared

  bool operator==(const FileRecord&) const = default;
};

enum class Take {
  kCopy,
  kMove,  // the source may go: renamed where that is possible
};

class Files {
 public:
  virtual ~Files() = default;

  // Whether paths are paths of this machine.
  virtual bool local() const = 0;
  // As a person writes it: "/data/run" or "s3://bucket/run".
  virtual std::string describe(const std::string& path) const = 0;

  // The same storage, with what `change` makes of its policy (retry.h). This machine's own storage tries nothing again.
  virtual std::shared_ptr<Files> with_policy(const std::function<void(RetryPolicy&)>& change) const = 0;

  virtual base::Result<bool> exists(const std::string& path) = 0;
  virtual base::Result<std::string> read(const std::string& path) = 0;
  // Readers see the old content or the new one, also after a crash.
  virtual base::Result<void> write_atomically(const std::string& path, std::string_view content) = 0;

  // Takes the files of a local folder, whole and durable, into `target` (made where absent; other files in it stay).
  // Each appears under its name only when it is complete. Returns what was taken, by path. Here and in adopt_folder
  // names that begin with ".trireme_" are ours and passed over.
  virtual base::Result<std::vector<FileRecord>> put_folder(const std::string& source, const std::string& target,
                                                           Take take) = 0;
  // Whether `source` is `target` itself. An error where it is no folder of this machine.
  virtual base::Result<bool> same_folder(const std::string& source, const std::string& target) = 0;
  // As put_folder for files that lie in `folder` already: reads their checksums and makes them durable.
  virtual base::Result<std::vector<FileRecord>> adopt_folder(const std::string& folder) = 0;
  // Copies to a local folder; what differs from `expected` is an error that names the file.
  virtual base::Result<void> get_folder(const std::string& folder, const std::vector<FileRecord>& expected,
                                        const std::string& target) = 0;
  virtual base::Result<std::string> checksum(const std::string& path) = 0;

  // Every file below the folder, sorted by path.
  virtual base::Result<std::vector<FileEntry>> list_files(const std::string& folder) = 0;
  // Names of the folders in it, one level, sorted.
  virtual base::Result<std::vector<std::string>> list_folders(const std::string& folder) = 0;
  virtual base::Result<void> make_folder(const std::string& path) = 0;
  // In one step, and durably. False, and nothing is done, where the storage cannot do that, `from` is not there or `to`
  // has content.
  virtual base::Result<bool> move_folder(const std::string& from, const std::string& to) = 0;
  // What was created, renamed or removed in it survives a crash after this.
  virtual base::Result<void> sync_folder(const std::string& path) = 0;
  // Nothing there is fine.
  virtual base::Result<void> remove_file(const std::string& path) = 0;
  virtual base::Result<void> remove_folder(const std::string& path) = 0;
};

}  // namespace trireme::storage
