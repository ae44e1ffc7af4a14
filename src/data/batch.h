#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/arrow_owned.h"
#include "data/chunk.h"
#include "data/schema.h"
#include "trireme/tensor.h"

namespace trireme::data {

// Consecutive rows of a chunk.
struct Run {
  std::uint32_t chunk = 0;
  std::int64_t row = 0;
  std::int64_t count = 0;
};

// A table that owns its memory, gathered from rows of chunks. A handle: copies share the memory.
class Batch {
 public:
  // Gathers the rows of the runs, in order, directly into the batch's buffers (64-byte aligned). The chunks must have
  // the same schema. Takes no interpreter lock and makes no allocation per row.
  static base::Result<Batch> gather(std::span<const std::shared_ptr<const Chunk>> chunks, std::span<const Run> runs);
  // A batch without rows.
  static Batch empty(std::shared_ptr<const Schema> schema);

  const std::shared_ptr<const Schema>& schema() const;
  std::int64_t rows() const;
  std::int64_t bytes() const;

  // A column without a copy (booleans are copied, one byte each): shape [rows], or [rows, ...] for lists of a fixed
  // size. The error names the column and the reason: text, lists of different lengths, or the number of nulls.
  base::Result<Tensor> tensor(std::size_t column) const;
  // The text of a column of strings. The views are valid while the batch lives.
  base::Result<std::vector<std::string_view>> strings(std::size_t column) const;
  // A record batch that shares the memory.
  Record exported() const;

 private:
  struct Data;
  explicit Batch(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  std::shared_ptr<const Data> data_;  // shared by handles, tensors and exported arrays
};

}  // namespace trireme::data
