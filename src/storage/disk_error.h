#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

// Error messages for the errno values of a Disk.

namespace trireme::storage {

// "could not write /data/x: No space left on device (errno 28); free space there or choose another storage_path".
base::Error failed(std::string_view what, const std::string& path, int error_number);

// Whether the file system of this file is full, except for a few lines.
bool no_space_for(const std::string& path);

// For a file that was in the user's folder when the folder was listed.
base::Error removed_meanwhile(const std::string& path);

}  // namespace trireme::storage
