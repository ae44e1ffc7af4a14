#pragma once

#include <string>

#include "base/lock_file.h"
#include "base/result.h"
#include "checkpoint/scratch_folder.h"
#include "storage/files.h"

namespace trireme::checkpoint {

// A checkpoint as a folder of this machine. One in a store elsewhere is downloaded once for all processes of this user
// that ask for it at the same time: the first one downloads, the others wait, and the last one to let go removes it.
// The locks are the kernel's (flock), so that a process that dies holds nothing up; what it leaves behind is removed by
// the next one that comes. A local checkpoint is used where it lies.
class SharedDownload {
 public:
  static base::Result<SharedDownload> open(storage::Files& files, const std::string& path,
                                           const std::string& downloads = temporary_folder("downloads"));
  // What killed processes have left.
  static void remove_abandoned(const std::string& downloads = temporary_folder("downloads"));

  SharedDownload(SharedDownload&&) noexcept = default;
  SharedDownload& operator=(SharedDownload&& other) noexcept;
  ~SharedDownload();

  // Only to be read: others read it too.
  const std::string& folder() const { return folder_; }

 private:
  explicit SharedDownload(std::string folder) : folder_(std::move(folder)) {}
  void release();

  std::string folder_;
  base::LockFile in_use_;  // locked, shared, while this lives; none for a local checkpoint
};

}  // namespace trireme::checkpoint
