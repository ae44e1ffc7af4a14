#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "storage/files.h"

namespace trireme::storage {

// Opens the storage for a storage_path: a local path, a file:// URI, or a URI whose scheme was registered with
// trireme::register_filesystem. Sets `path` to the path for its methods.
base::Result<std::shared_ptr<Files>> open_files(const std::string& uri, std::string& path);

// The URI or path of an entry in that folder. Options at the end of a URI stay at the end.
std::string child_of(const std::string& uri, const std::string& name);

}  // namespace trireme::storage
