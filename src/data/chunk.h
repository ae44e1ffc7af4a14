#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "data/arrow_c.h"
#include "data/schema.h"

namespace trireme::data {

class PackedRows;

// A record batch that a source has given: read only, shared, released with its last owner, on whatever thread that is.
class Chunk {
 public:
  // Takes the array over. Buffers that are missing where the schema needs them are an error.
  static base::Result<std::shared_ptr<const Chunk>> take(ArrowArray& array, std::shared_ptr<const Schema> schema);
  // The same rows, kept row by row; they have no columns to look into.
  static std::shared_ptr<const Chunk> of(PackedRows packed, std::shared_ptr<const Schema> schema);
  ~Chunk();
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  const std::shared_ptr<const Schema>& schema() const { return schema_; }
  std::int64_t rows() const { return array_.length; }
  // The struct's own offset is not in its columns' ones: add row_offset() to a row before looking into a column.
  std::int64_t row_offset() const { return array_.offset; }
  const ArrowArray& column(std::size_t index) const { return *array_.children[index]; }
  // What its rows take in memory, not counting rows that the array does not show.
  std::int64_t bytes() const { return bytes_; }
  // nullptr where it has columns.
  const PackedRows* packed() const { return packed_.get(); }

 private:
  Chunk() = default;

  std::shared_ptr<const Schema> schema_;
  ArrowArray array_{};
  std::int64_t bytes_ = 0;
  std::unique_ptr<const PackedRows> packed_;
};

}  // namespace trireme::data
