#pragma once

#include <string>

#include "base/lock_file.h"
#include "base/result.h"

namespace trireme::checkpoint {

// $TMPDIR/trireme-<user>/<name>, or the same in the folder of this node's agent; private to this user after
// make_private().
std::string temporary_folder(const std::string& name);
// Creates the folder and its parent so that other users cannot write to them. An error if they already can.
base::Result<void> make_private(const std::string& folder);

// A local folder for files to upload, removed by the destructor. A killed process leaves it behind; it is then removed
// when the next one is created, or by remove_abandoned().
class ScratchFolder {
 public:
  static base::Result<ScratchFolder> make(const std::string& parent = temporary_folder("uploads"));
  // Removes the folders of killed processes. Folders in use stay: their lock ends with their process.
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
