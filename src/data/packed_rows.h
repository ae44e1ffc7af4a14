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

// The layout of a table stored row by row. A row starts with a word that has one validity bit per column (1: not
// null).
struct RowLayout {
  std::vector<std::int64_t> offsets;
  std::int64_t row_bytes = 0;

  // For tables of few numbers per row. Nothing if storing row by row does not pay or is not supported.
  static std::optional<RowLayout> of(const Schema& schema);
};

// Rows that will be read in random order: stored together, each row costs one memory access instead of one per column.
class PackedRows {
 public:
  // Packs rows of a chunk with that layout.
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

// Unpacks the columns of these rows.
std::vector<Array> unpack(const Schema& schema, const RowLayout& layout, std::span<const std::byte* const> rows);

}  // namespace trireme::data
