#include "data/order.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "data/random.h"
#include "data/steps.h"

namespace trireme::data {
namespace {

// Numbers with many divisors: gangs of most sizes get complete virtual shards.
constexpr std::array<std::int64_t, 9> kShardCounts{60, 24, 12, 8, 6, 4, 3, 2, 1};
// Below this size every worker can read the complete dataset.
constexpr std::int64_t kSmallBytes = std::int64_t{256} << 20;
// Maximum memory of an open fragment: decoded pages and a chunk of rows.
constexpr std::int64_t kOpenBytes = std::int64_t{32} << 20;
// A single worker has one fragment per virtual shard open. Large datasets usually have more workers.
constexpr std::int64_t kLeastRoom = std::int64_t{256} << 20;
constexpr std::int64_t kMostRoom = std::int64_t{1} << 30;
constexpr std::int64_t kRoomShare = 64;   // of a dataset
constexpr std::int64_t kBudgetShare = 3;  // of the user's budget: rows take memory, too
// Below this, splitting saves little reading, unless rows are expensive.
constexpr std::int64_t kLeastRows = 4096;
constexpr std::int64_t kLeastCostlyRows = 32;
// Maximum number of parts of a fragment if splitting pays.
constexpr std::int64_t kMostParts = 12;

std::int64_t choose_virtual_shards(const DatasetSize& size, const Ordering& ordering) {
  const bool costly = ordering.costly_rows;
  if (!costly && size.bytes < kSmallBytes) return 1;
  const std::int64_t most = costly ? std::max(size.fragments, kMostParts) : size.fragments;
  const std::int64_t rows = costly ? std::max(kLeastCostlyRows, ordering.made_together) : kLeastRows;
  const std::int64_t each = ceil_div(std::max<std::int64_t>(size.bytes, 1), std::max<std::int64_t>(size.fragments, 1));
  const std::int64_t room = ordering.memory_budget ? *ordering.memory_budget / kBudgetShare
                                                   : std::clamp(size.bytes / kRoomShare, kLeastRoom, kMostRoom);
  for (std::int64_t count : kShardCounts) {
    if (count <= most && count * std::min(each, kOpenBytes) <= room && size.rows / count >= rows) return count;
  }
  return 1;
}

}  // namespace

DatasetSize size_of(std::span<const Fragment> fragments) {
  DatasetSize size;
  for (const auto& each : fragments) {
    size.rows += each.rows;
    size.bytes += each.bytes;
    size.fragments += each.rows > 0;
  }
  return size;
}

Layout lay_out(std::span<const Fragment> fragments, const Ordering& ordering) {
  const DatasetSize size = size_of(fragments);
  Layout layout;
  for (const auto& each : fragments) layout.fragment_rows.push_back(each.rows);
  layout.seed = ordering.seed;
  layout.shuffle_fragments = ordering.shuffle_fragments || ordering.shuffle_rows;
  std::int64_t window = 0;
  if (ordering.shuffle_rows) {
    const std::int64_t row_bytes =
        std::max<std::int64_t>(ceil_div(size.bytes, std::max<std::int64_t>(size.rows, 1)), 1);
    window = ordering.window_rows.value_or(kWindowBytes / row_bytes);
  }
  const bool whole = window >= size.rows && window > 0;  // splitting it would only make it less random
  layout.virtual_shards = ordering.virtual_shards.value_or(whole ? 1 : choose_virtual_shards(size, ordering));
  layout.virtual_shards = std::clamp<std::int64_t>(layout.virtual_shards, 1, std::max<std::int64_t>(size.rows, 1));
  if (window > 0) layout.window_rows = ceil_div(std::min(window, size.rows), layout.virtual_shards);
  return layout;
}

Order::Order(const Layout& layout, std::int64_t epoch)
    : virtual_shards_(layout.virtual_shards),
      window_rows_(layout.window_rows),
      seed_(mixed(layout.seed ^ mixed(static_cast<std::uint64_t>(epoch)))) {
  TRIREME_CHECK(virtual_shards_ > 0, "{} virtual shards", virtual_shards_);
  // Without those that have no rows: how many a filter leaves depends on the statistics in the files.
  for (std::size_t i = 0; i < layout.fragment_rows.size(); ++i) {
    if (layout.fragment_rows[i] > 0) fragments_.push_back(i);
  }
  if (layout.shuffle_fragments) {
    Random random(seed_);
    shuffle(std::span(fragments_), random);
  }
  begins_.reserve(fragments_.size() + 1);
  for (std::size_t fragment : fragments_) {
    begins_.push_back(rows_);
    rows_ += layout.fragment_rows[fragment];
  }
  begins_.push_back(rows_);
}

std::int64_t Order::begin_of(std::int64_t shard) const {
  return shard * (rows_ / virtual_shards_) + std::min(shard, rows_ % virtual_shards_);
}

std::int64_t Order::rows_of(std::int64_t shard) const { return begin_of(shard + 1) - begin_of(shard); }

std::vector<FragmentSlice> Order::pieces(std::int64_t shard, std::int64_t row) const {
  std::vector<FragmentSlice> pieces;
  const std::int64_t end = begin_of(shard + 1);
  std::int64_t at = begin_of(shard) + row;
  // The last fragment that begins at or before the row.
  auto index = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end() - 1, at) - begins_.begin());
  for (index = index == 0 ? 0 : index - 1; at < end; ++index) {
    const std::int64_t count = std::min(begins_[index + 1], end) - at;
    if (count > 0) pieces.push_back({fragments_[index], at - begins_[index], count});
    at = std::max(at, begins_[index + 1]);
  }
  return pieces;
}

std::vector<std::uint32_t> Order::permutation(std::int64_t shard, std::int64_t window) const {
  const std::int64_t count = std::min(window_rows_, rows_of(shard) - window * window_rows_);
  std::vector<std::uint32_t> rows(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  std::iota(rows.begin(), rows.end(), 0U);
  Random random(
      mixed(seed_ + mixed((static_cast<std::uint64_t>(shard) << 40) + static_cast<std::uint64_t>(window) + 1)));
  shuffle(std::span(rows), random);
  return rows;
}

}  // namespace trireme::data
