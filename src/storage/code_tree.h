#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"

namespace trireme::storage {

// The files of a folder with code (or a single file) that nodes need to import it. Left out: hidden files, bytecode,
// virtual environments, folders of runs, and files over 64 MiB, which are data.
struct CodeTree {
  std::map<std::string, std::uint64_t> files;  // path in the folder -> size
  // XXH3 of the names and contents of modules and configuration files. Others, such as the output of the run itself,
  // may grow in the same folder.
  std::string digest;
};

// An error if it is larger than 512 MiB or has more than 20,000 files.
base::Result<CodeTree> read_code(const std::string& path);

// Copies those files to a new folder.
base::Result<void> copy_code(const std::string& path, const CodeTree& tree, const std::string& target);

}  // namespace trireme::storage
