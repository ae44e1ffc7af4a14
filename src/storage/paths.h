#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace trireme::storage {

// A path that stays below the folder it is joined to: not empty, not absolute, without "..", "." or empty parts and
// without a NUL. For names that come from a file or from another process.
base::Result<void> check_relative(std::string_view path);

// Names that begin so are ours, wherever they lie: they are never part of what a user stores.
inline constexpr std::string_view kOwnPrefix = ".trireme_";

// A path in the folder that nobody uses, and nobody can guess: others may write to the folder too.
std::string temporary_in(const std::string& folder);

}  // namespace trireme::storage
