#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

// What an errno of a Disk means to people.

namespace trireme::storage {

// "could not write /data/x: No space left on device (errno 28); free space there or choose another storage_path".
base::Error failed(std::string_view what, const std::string& path, int error_number);

// Whether the disk of a file has no room for another few lines.
bool no_space_for(const std::string& path);

// A file of the user's folder was there when the folder was listed.
base::Error removed_meanwhile(const std::string& path);

}  // namespace trireme::storage
