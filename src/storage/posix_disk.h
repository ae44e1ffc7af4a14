#pragma once

#include "storage/disk.h"

namespace trireme::storage {

// The local disks and mounted file systems.
class PosixDisk final : public Disk {
 public:
  int open(const std::string& path, std::unique_ptr<OpenFile>& file) override;
  int create(const std::string& path, std::unique_ptr<OpenFile>& file) override;
  int open_folder(const std::string& path, std::unique_ptr<OpenFolder>& folder) override;
  int rename(const std::string& from, const std::string& to) override;
  int link(const std::string& from, const std::string& to) override;
  int remove_file(const std::string& path) override;
  int make_folder(const std::string& path) override;
  int remove_folder(const std::string& path) override;
  int list(const std::string& folder, std::vector<std::string>& names) override;
  int look(const std::string& path, Status& status) override;
  int look_through(const std::string& path, Status& status) override;
};

}  // namespace trireme::storage
