#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace trireme::checkpoint {

// A whole file in memory that its holder may write to; the file never changes with it.
struct FileBytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<const void> owner;  // shared by all tensors in it

  std::string_view text() const { return {reinterpret_cast<const char*>(data), size}; }
};

// Read when it is looked at. The file must not be cut off as long as it is held.
base::Result<FileBytes> map_file(const std::string& path);

// Read now, and its checksum (XXH3, as storage::Digest writes it) with it where that is asked for.
base::Result<FileBytes> read_file(const std::string& path, std::string* digest = nullptr);

}  // namespace trireme::checkpoint
