#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files.h"
#include "storage/retry.h"
#include "trireme/filesystem.h"

namespace trireme::storage {

// Remote storage, accessed through a file system that the program registers. Its calls may throw and are retried;
// several files are transferred in parallel.
class RemoteFiles final : public Files {
 public:
  // The file system is shared with the program. `scheme` is for messages.
  RemoteFiles(std::shared_ptr<FileSystem> file_system, std::string scheme, RetryPolicy policy = {});

  bool local() const override { return false; }
  std::string describe(const std::string& path) const override { return scheme_ + "://" + path; }

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
  base::Result<void> call(std::string_view doing, const std::string& path, const std::function<void()>& what);
  // Like call(), for paths that must exist: does not retry if the path is missing.
  base::Result<void> call_on_existing(std::string_view doing, const std::string& path,
                                      const std::function<void()>& what);
  base::Result<FileRecord> put_file(const std::string& local, const std::string& path, const std::string& target);
  base::Result<void> get_file(const std::string& folder, const FileRecord& wanted, const std::string& target);

  std::shared_ptr<FileSystem> file_system_;
  const std::string scheme_;
  const RetryPolicy policy_;
};

}  // namespace trireme::storage
