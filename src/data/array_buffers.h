#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/arrow_c.h"
#include "data/schema.h"

namespace trireme::data {

// Large buffers are mapped from the kernel and returned to it: the C library's heap would keep gaps of their size.
struct FreeBuffer {
  std::size_t mapped = 0;  // 0: allocated by the C library
  void operator()(std::byte* memory) const;
};

// Memory of a batch: aligned to 64 bytes and zero-padded to a multiple of 64. Allocates even for 0 bytes, since Arrow
// readers treat a null pointer as a missing buffer.
class Buffer {
 public:
  Buffer() = default;
  // Not initialised. Throws std::bad_alloc.
  static Buffer of(std::int64_t bytes);
  static Buffer zeroed(std::int64_t bytes);

  bool empty() const { return !memory_; }
  std::int64_t bytes() const { return bytes_; }
  std::byte* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte, FreeBuffer> memory_;
  std::int64_t bytes_ = 0;
};

// A column of a batch, or a nested child of one. Has no offset and no dictionaries.
struct Array {
  std::int64_t length = 0;
  std::int64_t null_count = 0;
  Buffer validity;  // only if there are nulls
  Buffer values;    // for text and lists: the offsets
  Buffer text;
  std::vector<Array> children;

  std::int64_t bytes() const;
};

}  // namespace trireme::data
