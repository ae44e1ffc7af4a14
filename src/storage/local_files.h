#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/disk.h"
#include "storage/files.h"

namespace trireme::storage {

// Local folders, with the syncs that POSIX requires for files to survive a crash.
class LocalFiles final : public Files {
 public:
  LocalFiles();
  // The disk is shared with a test that makes it fail.
  explicit LocalFiles(std::shared_ptr<Disk> disk);

  bool local() const override { return true; }
  std::string describe(const std::string& path) const override { return path; }

  std::shared_ptr<Files> with_policy(const std::function<void(RetryPolicy&)>& change) const override;

  base::Result<bool> exists(const std::string& path) override;
  base::Result<std::string> read(const std::string& path) override;
  base::Result<void> write_atomically(const std::string& path, std::string_view content) override;
  base::Result<std::vector<FileRecord>> put_folder(const std::string& source, const std::string& target,
                                                   Take take) override;
  base::Result<bool> same_folder(const std::string& source, const std::string& target) override;
  base::Result<std::vector<FileRecord>> adopt_folder(const std::string& folder) override;
  base::Result<void> get_folder(const std::string& folder, const std::vector<FileRecord>& expected,
                                const std::string& target) override;
  base::Result<std::string> checksum(const std::string& path) override;
  base::Result<std::vector<FileEntry>> list_files(const std::string& folder) override;
  base::Result<std::vector<std::string>> list_folders(const std::string& folder) override;
  base::Result<void> make_folder(const std::string& path) override;
  base::Result<bool> move_folder(const std::string& from, const std::string& to) override;
  base::Result<void> sync_folder(const std::string& path) override;
  base::Result<void> remove_file(const std::string& path) override;
  base::Result<void> remove_folder(const std::string& path) override;

 private:
  std::shared_ptr<Disk> disk_;
};

// Shorthands for callers that always use local storage.

base::Result<std::string> read_file(const std::string& path);
// Atomic, even in a crash: readers see either the old or the new content.
base::Result<void> write_file_atomically(const std::string& path, std::string_view content);
// Creates the folder and its parents. Has separate errors for missing permissions, a file with this name and a full
// disk.
base::Result<void> make_folder(const std::string& path);
base::Result<void> sync_folder(const std::string& path);
// All files below the folder, recursively, sorted by path.
base::Result<std::vector<FileEntry>> list_files(const std::string& folder);
// Removing a missing folder is not an error.
base::Result<void> remove_folder(const std::string& path);

}  // namespace trireme::storage
