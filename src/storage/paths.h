#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace trireme::storage {

// Checks that a path stays inside the folder it is joined to: not empty, not absolute, no NUL, and no "..", "." or
// empty components. For names read from a file or received from another process.
base::Result<void> check_relative(std::string_view path);

// Prefix of internal files. They are never part of what a user stores.
inline constexpr std::string_view kOwnPrefix = ".trireme_";

// An unused and unguessable path in the folder, because others may write to the folder too.
std::string temporary_in(const std::string& folder);

}  // namespace trireme::storage
