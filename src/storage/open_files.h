#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "storage/files.h"

namespace trireme::storage {

// The storage behind a storage_path: a path of this machine, a file:// URI, or a URI whose scheme was registered with
// trireme::register_filesystem. `path` becomes what its methods take.
base::Result<std::shared_ptr<Files>> open_files(const std::string& uri, std::string& path);

// The URI, or path, of something in that folder; options at the end of a URI stay at its end.
std::string child_of(const std::string& uri, const std::string& name);

}  // namespace trireme::storage
