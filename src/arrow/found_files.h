#pragma once

#include <arrow/filesystem/filesystem.h>

#include <memory>
#include <string>
#include <vector>

namespace trireme::arrow {

struct FoundFiles {
  std::shared_ptr<::arrow::fs::FileSystem> filesystem;  // shared with whoever reads them
  std::vector<::arrow::fs::FileInfo> files;             // by name
  std::string folder;                                   // the one that was given, where names of folders are columns
  bool remote = false;
};

// Files, folders and patterns, here or as URIs of one store. Throws std::runtime_error that names what matches nothing.
// `endings` (".png"): which files of a folder are meant, and of a pattern without one; all where there are none.
FoundFiles find_files(const std::vector<std::string>& paths, const std::vector<std::string>& endings = {});

// "a.parquet, b.parquet and 3 more".
std::string short_list(const std::vector<std::string>& paths);

}  // namespace trireme::arrow
