#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace trireme::checkpoint {

// A complete file in writable memory; writes do not change the file.
struct FileBytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<const void> owner;  // shared by all tensors in the file

  std::string_view text() const { return {reinterpret_cast<const char*>(data), size}; }
};

// Maps the file, so that it is read on access. It must not be truncated while it is mapped.
base::Result<FileBytes> map_file(const std::string& path);

// Reads the file now and, if requested, computes its checksum (XXH3, in the format of storage::Digest).
base::Result<FileBytes> read_file(const std::string& path, std::string* digest = nullptr);

}  // namespace trireme::checkpoint
