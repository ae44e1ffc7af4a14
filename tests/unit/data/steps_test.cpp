#include "data/steps.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

namespace steps_test {

using namespace trireme::data;

namespace {

std::vector<std::int64_t> sizes(std::int64_t rows, const Cutting& cutting, std::int64_t begin = 0) {
  auto steps = Steps::cut(rows, begin, cutting);
  REQUIRE(steps);
  std::vector<std::int64_t> made;
  for (std::int64_t i = 0; i < steps->count(); ++i) made.push_back((*steps)[i].size());
  return made;
}

using Sizes = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("an epoch is split into batches of the requested size") {
  CHECK(sizes(10, {.batch_rows = 4}) == Sizes{4, 4, 2});
  CHECK(sizes(9, {.batch_rows = 4}) == Sizes{4, 4, 1});
  CHECK(sizes(8, {.batch_rows = 4}) == Sizes{4, 4});
  CHECK(sizes(3, {.batch_rows = 4}) == Sizes{3});
  CHECK(sizes(10, {.batch_rows = 4, .drop_last = true}) == Sizes{4, 4});
}

TEST_CASE("a remainder that is too small for all ranks is shared with the previous batch") {
  CHECK(sizes(18, {.batch_rows = 8, .world = 4, .max_world = 4}) == Sizes{8, 5, 5});
  CHECK(sizes(20, {.batch_rows = 8, .world = 4, .max_world = 4}) == Sizes{8, 8, 4});
  // With one row per rank there is nothing to share.
  CHECK(sizes(9, {.batch_rows = 4, .world = 4, .max_world = 4}) == Sizes{4, 5});
  // The split is that of the largest gang, so that it is the same for all.
  CHECK(sizes(18, {.batch_rows = 8, .world = 1, .max_world = 4}) == Sizes{8, 5, 5});
  CHECK(sizes(3, {.batch_rows = 8, .world = 2, .max_world = 4}) == Sizes{3});
}

TEST_CASE("a split that leaves a rank without rows is rejected with advice") {
  auto few = Steps::cut(3, 0, {.batch_rows = 8, .world = 4, .max_world = 4});
  REQUIRE_FALSE(few);
  CHECK(few.error().message().find("3 rows for 4 workers: too few") != std::string::npos);
  auto none = Steps::cut(0, 0, {.batch_rows = 8});
  REQUIRE_FALSE(none);
  auto dropped = Steps::cut(3, 0, {.batch_rows = 4, .drop_last = true});
  REQUIRE_FALSE(dropped);
  CHECK(dropped.error().message().find("drop_last") != std::string::npos);
  CHECK_FALSE(Steps::cut(100, 0, {.batch_rows = 3, .world = 4, .max_world = 4}));
  // At the end of an epoch nothing is left, which is valid.
  CHECK(sizes(8, {.batch_rows = 4}, 8).empty());
  CHECK(sizes(10, {.batch_rows = 4, .drop_last = true}, 8).empty());
}

TEST_CASE("equal shares drop the remainder; padding fills up") {
  CHECK(sizes(10, {.batch_rows = 4, .world = 4, .max_world = 4, .equal = true}) == Sizes{4, 4});
  // Also if the last two batches share the rest.
  CHECK(sizes(10, {.batch_rows = 8, .world = 2, .max_world = 4, .equal = true}) == Sizes{6, 4});
  CHECK_FALSE(Steps::cut(20, 0, {.batch_rows = 5, .world = 2, .max_world = 2, .equal = true}));
  CHECK(sizes(3, {.batch_rows = 8, .world = 4, .max_world = 4, .pad = true}) == Sizes{3});
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t rows = 0;
    for (const auto& part : share({0, 3}, 2, rank, 4, 8)) rows += part.rows.size();
    CHECK(rows == 2);
  }
}

TEST_CASE("resuming in the middle gives the rest of the same split") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const int max_world = static_cast<int>(random() % 6 + 1);
    Cutting cutting{.batch_rows = static_cast<std::int64_t>(random() % 40 + max_world),
                    .world = max_world,
                    .max_world = max_world,
                    .drop_last = random() % 4 == 0};
    const std::int64_t rows = random() % 300 + max_world;
    auto whole = Steps::cut(rows, 0, cutting);
    if (!whole) continue;
    const std::int64_t step = random() % (whole->count() + 1);
    const std::int64_t begin = step == whole->count() ? (*whole)[step - 1].end : (*whole)[step].begin;
    cutting.world = static_cast<int>(random() % max_world) + 1;
    auto rest = Steps::cut(rows, begin, cutting);
    REQUIRE(rest);
    REQUIRE(rest->count() == whole->count() - step);
    for (std::int64_t i = 0; i < rest->count(); ++i) CHECK((*rest)[i] == (*whole)[step + i]);
    if (!cutting.drop_last) CHECK((*whole)[whole->count() - 1].end == rows);
  }
}

TEST_CASE("the ranks' shares partition a batch evenly, each with few virtual shards") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::int64_t shards = random() % 12 + 1;
    const int world = static_cast<int>(random() % 5 + 1);
    const std::int64_t begin = random() % 1000;
    const Span batch{begin, begin + world + static_cast<std::int64_t>(random() % 60)};
    std::map<std::int64_t, std::vector<Span>> taken;
    for (int rank = 0; rank < world; ++rank) {
      std::int64_t rows = 0;
      for (const auto& part : share(batch, shards, rank, world)) {
        taken[part.shard].push_back(part.rows);
        rows += part.rows.size();
      }
      CHECK(rows >= batch.size() / world);
      CHECK(rows <= batch.size() / world + 1);
    }
    std::int64_t all = 0;
    for (auto& [shard, spans] : taken) {
      for (std::size_t i = 0; i < spans.size(); ++i) {
        if (i > 0) CHECK(spans[i].begin == spans[i - 1].end);
        for (std::int64_t row = spans[i].begin; row < spans[i].end; ++row) {
          const std::int64_t at = row * shards + shard;
          CHECK(at >= batch.begin);
          CHECK(at < batch.end);
        }
        all += spans[i].size();
      }
    }
    CHECK(all == batch.size());
  }
}

TEST_CASE("a rank keeps its virtual shards") {
  for (int rank = 0; rank < 3; ++rank) {
    for (std::int64_t step = 0; step < 50; ++step) {
      for (const auto& part : share({step * 96, (step + 1) * 96}, 12, rank, 3)) {
        CHECK(part.shard / 4 == rank);
      }
    }
  }
}

}  // namespace steps_test
