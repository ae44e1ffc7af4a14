#include "data/order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "data/random.h"

namespace order_test {

using namespace trireme::data;

namespace {

std::vector<Fragment> fragments_of(const std::vector<std::int64_t>& rows, std::int64_t row_bytes = 8) {
  std::vector<Fragment> made;
  for (std::int64_t each : rows) made.push_back({"part", each, each * row_bytes});
  return made;
}

// The rows of the dataset, in the order of the epoch.
std::vector<std::int64_t> rows_in(const Layout& layout, std::int64_t epoch) {
  const Order order(layout, epoch);
  std::vector<std::int64_t> begins{0};
  for (std::int64_t rows : layout.fragment_rows) begins.push_back(begins.back() + rows);
  std::vector<std::vector<std::int64_t>> shards;
  for (std::int64_t shard = 0; shard < order.virtual_shards(); ++shard) {
    std::vector<std::int64_t> read, rows;
    for (const auto& piece : order.pieces(shard, 0)) {
      for (std::int64_t i = 0; i < piece.count; ++i) read.push_back(begins[piece.fragment] + piece.row + i);
    }
    CHECK(static_cast<std::int64_t>(read.size()) == order.rows_of(shard));
    rows = read;
    for (std::int64_t window = 0; layout.window_rows && window * layout.window_rows < order.rows_of(shard); ++window) {
      const auto permutation = order.permutation(shard, window);
      for (std::size_t i = 0; i < permutation.size(); ++i) {
        const auto begin = static_cast<std::size_t>(window * layout.window_rows);
        rows[begin + i] = read[begin + permutation[i]];
      }
    }
    shards.push_back(rows);
  }
  std::vector<std::int64_t> made;
  for (std::int64_t i = 0; i < order.rows(); ++i) {
    made.push_back(shards[static_cast<std::size_t>(i % order.virtual_shards())]
                         [static_cast<std::size_t>(i / order.virtual_shards())]);
  }
  return made;
}

}  // namespace

TEST_CASE("every epoch has every row once, with any layout") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::int64_t> rows(random() % 8 + 1);
    for (auto& each : rows) each = random() % 50;
    Layout layout;
    layout.fragment_rows = rows;
    layout.virtual_shards = random() % 7 + 1;
    layout.shuffle_fragments = random() % 2;
    layout.window_rows = random() % 2 ? random() % 20 + 1 : 0;
    layout.seed = random();
    auto seen = rows_in(layout, trial);
    CHECK(seen == rows_in(layout, trial));
    std::vector<std::int64_t> expected(seen.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::sort(seen.begin(), seen.end());
    CHECK(seen == expected);
    CHECK(static_cast<std::int64_t>(seen.size()) == std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  }
}

TEST_CASE("without shuffling and with one virtual shard the order is the dataset's") {
  const Layout layout = lay_out(fragments_of({10, 0, 5}), {});
  CHECK(layout.virtual_shards == 1);
  std::vector<std::int64_t> expected(15);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(rows_in(layout, 0) == expected);
  CHECK(rows_in(layout, 1) == expected);
}

TEST_CASE("a shuffled dataset that fits into a window is fully permuted, differently in every epoch") {
  const Layout layout = lay_out(fragments_of({500, 500}), {.shuffle_rows = true, .seed = 3});
  CHECK(layout.virtual_shards == 1);
  CHECK(layout.window_rows == 1000);
  const auto first = rows_in(layout, 0);
  CHECK(first != rows_in(layout, 1));
  Layout other = layout;
  other.seed = 4;
  CHECK(first != rows_in(other, 0));
  // Across fragments: about half of the first half is from each.
  const auto from_first = std::count_if(first.begin(), first.begin() + 500, [](std::int64_t row) { return row < 500; });
  CHECK(from_first > 150);
  CHECK(from_first < 350);
}

TEST_CASE("the layout follows from the dataset") {
  const std::vector<std::int64_t> many(100, 100'000);
  // 3 MB each: one virtual shard for each of the first 60.
  CHECK(lay_out(fragments_of(many, 30), {}).virtual_shards == 60);
  // 100 MB each: as many as fit in memory together.
  CHECK(lay_out(fragments_of(many, 1000), {}).virtual_shards == 8);
  CHECK(lay_out(fragments_of(std::vector<std::int64_t>(1000, 100'000), 1000), {}).virtual_shards == 24);
  CHECK(lay_out(fragments_of(many, 1000), {.memory_budget = 200'000'000}).virtual_shards == 1);
  // Small datasets, and datasets with few fragments, are not split.
  CHECK(lay_out(fragments_of(many, 2), {}).virtual_shards == 1);
  CHECK(lay_out(fragments_of({10'000'000}, 100), {}).virtual_shards == 1);
  CHECK(lay_out(fragments_of(std::vector<std::int64_t>(5, 1'000'000), 100), {}).virtual_shards == 4);
  CHECK(lay_out(fragments_of(many), {.virtual_shards = 7}).virtual_shards == 7);
  // A shuffle of more than a window: the rows of all virtual shards together take the same memory.
  const Layout large = lay_out(fragments_of(many, 40), {.shuffle_rows = true});
  CHECK(large.virtual_shards == 60);
  CHECK(large.window_rows == (kWindowBytes / 40 + 59) / 60);
  CHECK(lay_out(fragments_of({}), {}).virtual_shards == 1);
  // A single fragment is split if its rows cost more than reading them again.
  CHECK(lay_out(fragments_of({100'000}), {}).virtual_shards == 1);
  CHECK(lay_out(fragments_of({1000}), {.costly_rows = true}).virtual_shards == 12);
  CHECK(lay_out(fragments_of({100}), {.costly_rows = true}).virtual_shards == 3);
  // Parts smaller than the rows that are computed together save no work.
  CHECK(lay_out(fragments_of({1000}), {.costly_rows = true, .made_together = 300}).virtual_shards == 3);
  CHECK(lay_out(fragments_of({1000}), {.costly_rows = true, .made_together = 1024}).virtual_shards == 1);
}

TEST_CASE("pieces can begin at any row") {
  Layout layout;
  layout.fragment_rows = {4, 0, 6};
  const Order order(layout, 0);
  CHECK(order.pieces(0, 0) == std::vector<FragmentSlice>{{0, 0, 4}, {2, 0, 6}});
  CHECK(order.pieces(0, 3) == std::vector<FragmentSlice>{{0, 3, 1}, {2, 0, 6}});
  CHECK(order.pieces(0, 4) == std::vector<FragmentSlice>{{2, 0, 6}});
  CHECK(order.pieces(0, 10).empty());
  layout.virtual_shards = 3;
  const Order cut(layout, 0);
  CHECK(cut.pieces(0, 0) == std::vector<FragmentSlice>{{0, 0, 4}});
  CHECK(cut.pieces(1, 1) == std::vector<FragmentSlice>{{2, 1, 2}});
  CHECK(cut.pieces(2, 0) == std::vector<FragmentSlice>{{2, 3, 3}});
}

TEST_CASE("random numbers are reproducible and uniform") {
  Random random(1);
  CHECK(random.next() == 0x910a2dec89025cc1ULL);
  CHECK(random.next() == 0xbeeb8da1658eec67ULL);
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) ++counts[random.below(7)];
  for (int count : counts) CHECK(std::abs(count - 10'000) < 500);
}

}  // namespace order_test
