#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/array_buffers.h"
#include "data/chunk.h"
#include "data/schema.h"

namespace trireme::data {

// Where the columns are in a row of a table that is kept row by row. A row begins with a word that has a bit for each
// column: whether it is there (not null).
struct RowLayout {
  std::vector<std::int64_t> offsets;
  std::int64_t row_bytes = 0;

  // For tables of few numbers a row; nothing where row by row would not pay, or not work.
  static std::optional<RowLayout> of(const Schema& schema);
};

// Rows that will be taken in random order: kept together, each costs one visit to memory and not one for every column.
class PackedRows {
 public:
  // Rows of a chunk with that layout.
  PackedRows(const Chunk& chunk, std::int64_t row, std::int64_t count, RowLayout layout);

  std::int64_t rows() const { return rows_; }
  std::int64_t bytes() const { return rows_ * layout_.row_bytes; }
  const RowLayout& layout() const { return layout_; }
  const std::byte* row(std::int64_t index) const { return memory_.data() + index * layout_.row_bytes; }

 private:
  RowLayout layout_;
  std::int64_t rows_ = 0;
  Buffer memory_;
};

// The columns of these rows.
std::vector<Array> unpack(const Schema& schema, const RowLayout& layout, std::span<const std::byte* const> rows);

}  // namespace trireme::data
