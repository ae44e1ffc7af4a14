#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/files.h"

// Large files out of memory onto a local disk, as fast as the disk takes them.

namespace trireme::checkpoint {

struct SaveOptions {
  bool durable = true;  // what was saved survives a crash of the machine
  int threads = 0;      // 1: all in the calling thread; 0: more where the size is worth it
};

struct FileContent {
  std::string name;
  std::vector<std::string_view> pieces;  // one after the other
};

// Writes the files into the folder, which is made where it is absent. They are written under other names and take their
// own when all are complete; the last one comes last, and is away while the others change: who finds it finds all.
base::Result<std::vector<storage::FileRecord>> write_files(const std::string& folder,
                                                           const std::vector<FileContent>& files,
                                                           const SaveOptions& options);

}  // namespace trireme::checkpoint
