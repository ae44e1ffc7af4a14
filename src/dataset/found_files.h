#pragma once

#include <arrow/filesystem/filesystem.h>

#include <memory>
#include <string>
#include <vector>

namespace trireme::dataset {

struct FoundFiles {
  std::shared_ptr<::arrow::fs::FileSystem> filesystem;  // shared with the readers
  std::vector<::arrow::fs::FileInfo> files;             // sorted by name
  std::string folder;                                   // the given folder, if folder names are columns
  bool remote = false;
};

// Finds files, folders and patterns, local or as URIs of one store. Throws std::runtime_error with the path that
// matches nothing. `endings` (".png"): selects files of a folder, and of a pattern without an extension; empty: all
// files.
FoundFiles find_files(const std::vector<std::string>& paths, const std::vector<std::string>& endings = {});

// "a.parquet, b.parquet and 3 more".
std::string short_list(const std::vector<std::string>& paths);

}  // namespace trireme::dataset
