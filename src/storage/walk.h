#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/disk.h"

namespace trireme::storage {

struct FoundFile {
  std::string path;  // relative to the folder
  std::uint64_t size = 0;
  // Whether this path is the only one of the file: not reached through a symbolic link, and no other hard links. Only
  // then may it be moved.
  bool sole = true;
};

enum class Walk {
  // All files. Skips sockets, pipes, devices, dangling links, and files removed since they were listed.
  kAll,
  // The files that a user wants to store, without internal files. A file that cannot be stored is an error.
  kStore,
};

// Called for every folder before it is listed, including the top one. An error ends the walk.
using Veto = std::function<base::Result<void>(const std::string& path, const Status& folder)>;

// The files below a folder, recursively, sorted by path. Symbolic links are followed; their targets get the link's
// name.
base::Result<std::vector<FoundFile>> walk(Disk& disk, const std::string& folder, Walk how, const Veto& veto = nullptr);

}  // namespace trireme::storage
