#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/files.h"

namespace trireme::checkpoint {

// The user's files in a checkpoint folder: the files in its manifest, with checksums, or, in a folder that no run
// created, all files.
struct Contents {
  std::vector<storage::FileRecord> files;
  std::string metadata;  // content of .metadata.json, which may change after the commit; empty: none
  std::string manifest;  // its text; empty: none
};
base::Result<Contents> read_contents(storage::Files& files, const std::string& path);

// Copies a checkpoint into a local folder. A file that differs from the committed one is an error that names the file.
base::Result<void> download(storage::Files& files, const std::string& path, const Contents& contents,
                            const std::string& target);
base::Result<void> download(storage::Files& files, const std::string& path, const std::string& target);

}  // namespace trireme::checkpoint
