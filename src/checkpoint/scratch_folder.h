#pragma once

#include <string>

#include "base/lock_file.h"
#include "base/result.h"

namespace trireme::checkpoint {

// $TMPDIR/trireme-<user>/<name>, a folder of this user alone once make_private() has been there.
std::string temporary_folder(const std::string& name);
// Makes the folder and its parent such that others can put nothing there; an error where they already could.
base::Result<void> make_private(const std::string& folder);

// A folder of this machine for files on their way to a store elsewhere. It goes with its owner. A killed process leaves
// it behind, whole states with it: then it goes with the next one that is made, or with remove_abandoned().
class ScratchFolder {
 public:
  static base::Result<ScratchFolder> make(const std::string& parent = temporary_folder("uploads"));
  // What killed processes have left. Those in use stay: the lock is the kernel's and ends with its process.
  static void remove_abandoned(const std::string& parent = temporary_folder("uploads"));

  ScratchFolder(ScratchFolder&&) noexcept = default;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::string& path() const { return path_; }

 private:
  ScratchFolder(std::string path, base::LockFile locked) : path_(std::move(path)), locked_(std::move(locked)) {}

  std::string path_;
  base::LockFile locked_;  // the folder itself
};

}  // namespace trireme::checkpoint
