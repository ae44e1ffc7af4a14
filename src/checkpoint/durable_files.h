#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/files.h"

// Writes large files from memory to a local disk, at the speed of the disk.

namespace trireme::checkpoint {

struct SaveOptions {
  bool durable = true;  // the files survive a crash of the machine
  int threads = 0;      // 1: only the calling thread; 0: depends on the size
};

struct FileContent {
  std::string name;
  std::vector<std::string_view> pieces;  // in order
};

// Writes the files into the folder, which is created if necessary. They get their names when all are complete. The last
// file is removed first and renamed last, so if it exists, all files are complete.
base::Result<std::vector<storage::FileRecord>> write_files(const std::string& folder,
                                                           const std::vector<FileContent>& files,
                                                           const SaveOptions& options);

}  // namespace trireme::checkpoint
