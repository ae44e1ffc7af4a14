#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/disk.h"

namespace trireme::storage {

struct FoundFile {
  std::string path;  // relative to the folder
  std::uint64_t size = 0;
  // Whether this path is all there is to the file: no link led to it and it has no second name. Only then may it be
  // moved.
  bool sole = true;
};

enum class Walk {
  // Every file. What is no file, leads nowhere or vanishes meanwhile is passed over.
  kAll,
  // What a user wants stored: without our own files, and what cannot be stored is an error.
  kStore,
};

// The files below a folder, sorted by path. Links are followed: what they lead to is found under the link's name. With
// `outside` it is an error if that folder lies below.
base::Result<std::vector<FoundFile>> walk(Disk& disk, const std::string& folder, Walk how,
                                          const std::optional<Status>& outside = std::nullopt);

}  // namespace trireme::storage
