#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/result.h"

// Splits an epoch into global batches, and each global batch among the ranks.

namespace trireme::data {

// a / b, rounded up; 0 for negative a.
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }

// Rows of the epoch: [begin, end).
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

struct Cutting {
  std::int64_t batch_rows = 1;  // of a global batch
  int world = 1;
  // The maximum number of workers of the run: a last batch that is too small for them is merged with the previous one.
  // The split must not depend on the current number of workers.
  int max_world = 1;
  bool drop_last = false;
  // Pad the last batch by repeating its rows.
  bool pad = false;
  // Give every rank the same number of rows; drop the remainder.
  bool equal = false;

  // The size to which a global batch is padded; 0: no padding.
  std::int64_t pad_to(Span batch) const { return pad ? std::max(batch_rows, batch.size()) : 0; }

  bool operator==(const Cutting&) const = default;
};

// The global batches of an epoch from a position on. Every rank takes part in each of them with at least one row.
class Steps {
 public:
  // Fails if a rank would get no row.
  static base::Result<Steps> cut(std::int64_t epoch_rows, std::int64_t begin, const Cutting& cutting);

  std::int64_t count() const { return count_; }
  // Without padding.
  Span operator[](std::int64_t step) const;

 private:
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
  std::int64_t batch_rows_ = 1;
  std::int64_t count_ = 0;
  std::int64_t before_last_ = 0;  // rows of the second-to-last batch
};

// Consecutive rows of a virtual shard.
struct ShardRows {
  std::int64_t shard = 0;
  Span rows;

  bool operator==(const ShardRows&) const = default;
};

// A rank's share of a global batch, sorted by virtual shard: its own few shards, and at the edges parts of others.
// With pad_to > 0 every rank gets pad_to / world rows; the batch's rows repeat if it has too few.
std::vector<ShardRows> share(Span batch, std::int64_t virtual_shards, int rank, int world, std::int64_t pad_to = 0);

// A rank's own rows of the batch, as indices into the rows sorted by virtual shard: its first ones, before the rows
// that pad the batch.
Span own_slots(Span batch, int rank, int world, std::int64_t pad_to = 0);

}  // namespace trireme::data
