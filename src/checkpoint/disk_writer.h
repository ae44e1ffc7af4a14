#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trireme::checkpoint {

// Writes the pieces in order to a new and empty file. With `durable`, they are on the disk when it returns.
//
// Large files bypass the page cache on file systems that support this well: a checkpoint would evict the training data
// from the cache, and allocating that many pages can take longer than the disk.
base::Result<void> write_pieces(int fd, const std::string& path, const std::vector<std::string_view>& pieces,
                                bool durable);

}  // namespace trireme::checkpoint
