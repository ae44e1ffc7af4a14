#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/result.h"

// How an epoch is cut into global batches and each of them among the ranks.

namespace trireme::data {

// Rows of the epoch, from begin up to and not with end.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

struct Cutting {
  std::int64_t batch_rows = 1;  // of a global batch
  int world = 1;
  // The most workers that the run may have: a last batch that is too small for them is merged with the one before.
  // The cut must not depend on how many there are now.
  int max_world = 1;
  bool drop_last = false;
  // The last batch is filled up with rows of its own.
  bool pad = false;
  // Every rank gets the same number of rows: what does not divide is left out.
  bool equal = false;

  // What a global batch is filled up to; 0: not at all.
  std::int64_t pad_to(Span batch) const { return pad ? std::max(batch_rows, batch.size()) : 0; }

  bool operator==(const Cutting&) const = default;
};

// The global batches of an epoch from a place in it on. Every rank takes part in each of them, with at least one row.
class Steps {
 public:
  // Refuses what leaves a rank without a row.
  static base::Result<Steps> cut(std::int64_t epoch_rows, std::int64_t begin, const Cutting& cutting);

  std::int64_t count() const { return count_; }
  // Without what pads it.
  Span operator[](std::int64_t step) const;

 private:
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
  std::int64_t batch_rows_ = 1;
  std::int64_t count_ = 0;
  std::int64_t before_last_ = 0;  // rows of the last but one
};

// Rows of a virtual shard that follow one another.
struct ShardRows {
  std::int64_t shard = 0;
  Span rows;

  bool operator==(const ShardRows&) const = default;
};

// What a rank takes of a global batch, sorted by virtual shard: its own few shards, and at an edge part of one more.
// With pad_to > 0 every rank gets pad_to / world rows, the batch's own from the beginning again where it has too few.
std::vector<ShardRows> share(Span batch, std::int64_t virtual_shards, int rank, int world, std::int64_t pad_to = 0);

// Which rows of the batch, sorted by virtual shard and counted from 0, are a rank's own: its first ones, before those
// that pad the batch.
Span own_slots(Span batch, int rank, int world, std::int64_t pad_to = 0);

}  // namespace trireme::data
