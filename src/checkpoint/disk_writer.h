#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trireme::checkpoint {

// Writes the pieces, one after the other, to a new and empty file; where `durable`, they are on the disk when it
// returns.
//
// Large files go past the page cache where the file system is known to do that well: a checkpoint would push out the
// training's data there, and finding so many free pages at once can take longer than the disk does.
base::Result<void> write_pieces(int fd, const std::string& path, const std::vector<std::string_view>& pieces,
                                bool durable);

}  // namespace trireme::checkpoint
