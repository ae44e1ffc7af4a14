#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "data/arrow_owned.h"
#include "data/schema.h"

namespace trireme::data {

class PackedRows;

// A record batch from a source: read-only and shared. The last owner releases it, on any thread.
class Chunk {
 public:
  // Missing buffers that the schema requires are an error.
  static base::Result<std::shared_ptr<const Chunk>> take(OwnedArray array, std::shared_ptr<const Schema> schema);
  // The same rows, stored row by row; such a chunk has no columns.
  static std::shared_ptr<const Chunk> of(PackedRows packed, std::shared_ptr<const Schema> schema);
  ~Chunk();
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  const std::shared_ptr<const Schema>& schema() const { return schema_; }
  std::int64_t rows() const { return array_->length; }
  // The struct's offset is not part of its columns' offsets: add row_offset() to a row before accessing a column.
  std::int64_t row_offset() const { return array_->offset; }
  const ArrowArray& column(std::size_t index) const { return *array_->children[index]; }
  // Memory of the visible rows.
  std::int64_t bytes() const { return bytes_; }
  // nullptr if the chunk has columns.
  const PackedRows* packed() const { return packed_.get(); }

 private:
  Chunk() = default;

  std::shared_ptr<const Schema> schema_;
  OwnedArray array_;
  std::int64_t bytes_ = 0;
  std::unique_ptr<const PackedRows> packed_;
};

}  // namespace trireme::data
