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

// Asked about every folder before it is looked into, the top one too; an error ends the walk.
using Veto = std::function<base::Result<void>(const std::string& path, const Status& folder)>;

// The files below a folder, sorted by path. Links are followed: what they lead to is found under the link's name.
base::Result<std::vector<FoundFile>> walk(Disk& disk, const std::string& folder, Walk how, const Veto& veto = nullptr);

}  // namespace trireme::storage
