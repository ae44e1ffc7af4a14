#include "data/steps.h"

#include <algorithm>

#include "base/text.h"

namespace trireme::data {
namespace {

// A slice of the batch's rows, sorted by virtual shard.
void append_slice(std::vector<ShardRows>& taken, Span batch, std::int64_t shards, Span slice) {
  std::int64_t before = 0;  // rows of the previous shards
  for (std::int64_t shard = 0; shard < shards && before < slice.end; ++shard) {
    const Span rows{ceil_div(batch.begin - shard, shards), ceil_div(batch.end - shard, shards)};
    const std::int64_t from = std::max(slice.begin - before, std::int64_t{0});
    const std::int64_t to = std::min(slice.end - before, rows.size());
    if (from < to) taken.push_back({shard, {rows.begin + from, rows.begin + to}});
    before += rows.size();
  }
}

}  // namespace

base::Result<Steps> Steps::cut(std::int64_t epoch_rows, std::int64_t begin, const Cutting& cutting) {
  const std::int64_t batch = cutting.batch_rows;
  const std::int64_t most = std::max(cutting.world, cutting.max_world);
  if (batch < cutting.world) {
    return base::error("a global batch of {} leaves some of the {} without rows: use a larger batch_size",
                       base::count_of(batch, "row"), base::count_of(cutting.world, "worker"));
  }
  if (cutting.equal && batch % cutting.world != 0) {
    return base::error("a global batch of {} cannot be split equally among {}: use a multiple of {}",
                       base::count_of(batch, "row"), base::count_of(cutting.world, "worker"), cutting.world);
  }
  Steps steps;
  steps.begin_ = begin;
  steps.batch_rows_ = batch;
  std::int64_t rows = epoch_rows - begin;
  if (cutting.equal) rows -= rows % cutting.world;
  const std::int64_t full = rows / batch;
  const std::int64_t rest = rows % batch;
  steps.count_ = full;
  if (cutting.drop_last) {
    if (full == 0 && begin == 0) {
      return base::error(
          "an epoch of {} is smaller than one batch of {} (batch_size times {}), which "
          "drop_last drops: use a smaller batch_size, or turn off drop_last",
          base::count_of(epoch_rows, "row"), batch, base::count_of(cutting.world, "worker"));
    }
    steps.end_ = begin + full * batch;
    return steps;
  }
  steps.end_ = begin + rows;
  if (rest == 0) {
    if (rows == 0 && begin == 0)
      return base::error("the dataset has no rows{}", cutting.equal ? " for every worker" : "");
    return steps;
  }
  if (full == 0 && rest < cutting.world && !cutting.pad) {
    return base::error(
        "{} for {}: too few; use fewer workers, do not split this dataset "
        "(DataConfig.datasets_to_split), or set pad_last",
        base::count_of(rest, "row"), base::count_of(cutting.world, "worker"));
  }
  if (full == 0 || rest >= most || cutting.pad) {
    steps.count_ = full + 1;
  } else if (batch >= 2 * most) {
    // Too few rows for all ranks: the last two batches share the rest, so that every rank gets rows and no batch is
    // larger than requested.
    steps.count_ = full + 1;
    steps.before_last_ = (batch + rest + 1) / 2;
    if (cutting.equal) steps.before_last_ = (steps.before_last_ + cutting.world - 1) / cutting.world * cutting.world;
  }  // else the last batch includes them: with one row per rank there is nothing to share
  return steps;
}

Span Steps::operator[](std::int64_t step) const {
  const bool shorter = before_last_ > 0 && step >= count_ - 2;
  std::int64_t begin = begin_ + step * batch_rows_;
  if (shorter && step == count_ - 1) begin += before_last_ - batch_rows_;
  if (step == count_ - 1) return {begin, end_};
  return {begin, begin + (shorter ? before_last_ : batch_rows_)};
}

std::vector<ShardRows> share(Span batch, std::int64_t virtual_shards, int rank, int world, std::int64_t pad_to) {
  std::vector<ShardRows> taken;
  const std::int64_t size = batch.size();
  if (pad_to <= size) {
    append_slice(taken, batch, virtual_shards, own_slots(batch, rank, world));
    return taken;
  }
  // Repeats the rows of the batch.
  std::int64_t at = pad_to * rank / world;
  const std::int64_t end = pad_to * (rank + 1) / world;
  while (at < end) {
    const std::int64_t here = at % size;
    const std::int64_t count = std::min(size - here, end - at);
    append_slice(taken, batch, virtual_shards, {here, here + count});
    at += count;
  }
  return taken;
}

Span own_slots(Span batch, int rank, int world, std::int64_t pad_to) {
  const std::int64_t size = batch.size();
  const std::int64_t all = std::max(size, pad_to);
  return {std::min(all * rank / world, size), std::min(all * (rank + 1) / world, size)};
}

}  // namespace trireme::data
