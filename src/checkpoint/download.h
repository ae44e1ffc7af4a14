#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/files.h"

namespace trireme::checkpoint {

// What a checkpoint's folder holds for its user: the files of its manifest, with checksums, or, in a folder that
// somebody else made, whatever lies there.
struct Contents {
  std::vector<storage::FileRecord> files;
  std::string metadata;  // of .metadata.json, which may change after the commit; empty: none
  std::string manifest;  // its text; empty: there is none
};
base::Result<Contents> read_contents(storage::Files& files, const std::string& path);

// Copies a checkpoint into a local folder. A file that is not what was committed is an error that names it.
base::Result<void> download(storage::Files& files, const std::string& path, const Contents& contents,
                            const std::string& target);
base::Result<void> download(storage::Files& files, const std::string& path, const std::string& target);

}  // namespace trireme::checkpoint
