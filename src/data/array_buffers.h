#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/arrow_c.h"
#include "data/schema.h"

namespace trireme::data {

// Large buffers come from the kernel and go back to it: the heap of the C library keeps gaps of their size for good.
struct FreeBuffer {
  std::size_t mapped = 0;  // 0: it is of the C library
  void operator()(std::byte* memory) const;
};

// Memory of a batch: aligned to 64 bytes and padded with zeros to a multiple of them. There is some even for 0 bytes,
// since readers of Arrow's arrays take a null pointer for a missing buffer.
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

// A column of a batch, or of what lies inside one. Without an offset, and without dictionaries.
struct Array {
  std::int64_t length = 0;
  std::int64_t null_count = 0;
  Buffer validity;  // only where there are nulls
  Buffer values;    // the offsets of text and lists
  Buffer text;
  std::vector<Array> children;

  std::int64_t bytes() const;
};

// Every array that is made shares `owner`: a reader may keep a child and release the rest.
ArrowArray export_array(const Type& type, const Array& array, const std::shared_ptr<const void>& owner);
ArrowArray export_struct(std::int64_t rows, std::vector<ArrowArray> columns, const std::shared_ptr<const void>& owner);

}  // namespace trireme::data
