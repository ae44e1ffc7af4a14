#pragma once

#include <string>

#include "base/lock_file.h"
#include "base/result.h"
#include "checkpoint/scratch_folder.h"
#include "storage/files.h"

namespace trireme::checkpoint {

// A checkpoint as a local folder. A remote checkpoint is downloaded once for all processes of this user that need it at
// the same time: the first one downloads it, the others wait, and the last one removes it. The kernel releases the
// locks (flock) of a process that dies; the next process removes its leftovers. A local checkpoint is used in place.
class SharedDownload {
 public:
  static base::Result<SharedDownload> open(storage::Files& files, const std::string& path,
                                           const std::string& downloads = temporary_folder("downloads"));
  // Removes the downloads of killed processes.
  static void remove_abandoned(const std::string& downloads = temporary_folder("downloads"));

  SharedDownload(SharedDownload&&) noexcept = default;
  SharedDownload& operator=(SharedDownload&& other) noexcept;
  ~SharedDownload();

  // Read-only: other processes read it too.
  const std::string& folder() const { return folder_; }

 private:
  explicit SharedDownload(std::string folder) : folder_(std::move(folder)) {}
  void release();

  std::string folder_;
  base::LockFile in_use_;  // shared lock for the lifetime of this; invalid for a local checkpoint
};

}  // namespace trireme::checkpoint
