#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/disk.h"
#include "storage/files.h"

namespace trireme::storage {

// Folders of this machine, with what POSIX wants for files to survive a crash.
class LocalFiles final : public Files {
 public:
  LocalFiles();
  // Shared with a test that makes it fail.
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

// The same for callers that always mean this machine.

base::Result<std::string> read_file(const std::string& path);
// Readers see the old content or the new one, also after a crash.
base::Result<void> write_file_atomically(const std::string& path, std::string_view content);
// Makes the folder and those above it; tells apart "not allowed", "a file is in the way" and "no space".
base::Result<void> make_folder(const std::string& path);
base::Result<void> sync_folder(const std::string& path);
// Every file below the folder, sorted by path.
base::Result<std::vector<FileEntry>> list_files(const std::string& folder);
// Copies the folder's content into `target` (made where absent; other files in it stay), durably.
base::Result<void> copy_folder(const std::string& source, const std::string& target);
// Nothing there is fine.
base::Result<void> remove_folder(const std::string& path);

}  // namespace trireme::storage
