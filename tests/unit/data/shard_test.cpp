#include "data/shard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "gang.h"

namespace shard_test {

using namespace trireme;
using namespace trireme::data;
using tests::Batches;
using tests::batches_of;
using tests::Case;
using tests::Gang;
using tests::random_case;
using tests::shard_of;

namespace {

constexpr std::int64_t kAll = 1'000'000;

// For a dataset that is neither shuffled nor split.
Dict place(std::int64_t epoch, std::int64_t rows, std::int64_t size) {
  return {{"epoch", epoch},
          {"rows", rows},
          {"size", size},
          {"seed", 0},
          {"virtual_shards", 1},
          {"window_rows", 0},
          {"shuffle_fragments", false},
          {"dataset_seed", 0}};
}

}  // namespace

TEST_CASE("global batches are the same for every world size, over kills and resizes, and have every row once") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 120; ++trial) {
    CAPTURE(trial);
    const Case each = random_case(random);
    std::map<std::int64_t, Batches> expected;
    {
      Dict position;
      for (int epoch = 0; epoch < 3; ++epoch) {
        Gang undisturbed(each, 1, position);
        expected[epoch] = undisturbed.take(kAll);
        position = undisturbed.position();
      }
    }
    std::map<std::int64_t, Batches> seen;
    Dict position;
    for (int attempt = 0; attempt < 40 && seen[2].size() < expected[2].size(); ++attempt) {
      Gang gang(each, static_cast<int>(random() % each.max_world) + 1, position);
      auto taken = gang.take(random() % 6 + 1);
      auto& epoch = seen[gang.epoch()];
      epoch.insert(epoch.end(), taken.begin(), taken.end());
      position = gang.position();
      (void)gang.take(random() % 3);  // lost with the gang
    }
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      if (seen[epoch].size() == expected[epoch].size()) CHECK(seen[epoch] == expected[epoch]);
      std::vector<std::int64_t> rows;
      for (const auto& batch : expected[epoch]) rows.insert(rows.end(), batch.begin(), batch.end());
      std::sort(rows.begin(), rows.end());
      CHECK(std::adjacent_find(rows.begin(), rows.end()) == rows.end());
      std::int64_t all = 0;
      for (std::int64_t count : each.fragment_rows) all += count;
      if (!each.iterating.drop_last) CHECK(static_cast<std::int64_t>(rows.size()) == all);
    }
    CHECK(seen[0] == expected[0]);
  }
}

TEST_CASE("a shuffled dataset has a different order in every epoch, reproducible with the seed") {
  const Case each{
      .fragment_rows = {40, 40}, .ordering = {.shuffle_rows = true, .seed = 9}, .iterating = {.batch_size = 8}};
  auto shard = shard_of(each, 0, 1);
  auto first = batches_of(**shard->iterate(each.iterating));
  auto second = batches_of(**shard->iterate(each.iterating));
  CHECK(first != second);
  CHECK(shard->epoch() == 2);
  auto again = shard_of(each, 0, 1);
  CHECK(batches_of(**again->iterate(each.iterating)) == first);
}

TEST_CASE("after an abandoned iteration a new epoch starts, also after a restart") {
  const Case each{.fragment_rows = {40}, .ordering = {}, .iterating = {.batch_size = 8}};
  auto shard = shard_of(each, 0, 1);
  {
    auto pass = shard->iterate(each.iterating);
    (void)(*pass)->next(std::chrono::seconds(60)).ok();
    CHECK(shard->position() == place(0, 8, 40));
  }
  CHECK(shard->position() == place(1, 0, 40));
  CHECK(shard->state()["rows"].as_int() == 8);
  auto pass = shard->iterate(each.iterating);
  CHECK((*pass)->epoch() == 1);
  CHECK(batches_of(**pass).size() == 5);
}

TEST_CASE("after the last batch the position is the start of the next epoch") {
  const Case each{.fragment_rows = {10}, .ordering = {}, .iterating = {.batch_size = 4, .drop_last = true}};
  auto shard = shard_of(each, 0, 1);
  auto pass = shard->iterate(each.iterating);
  for (int i = 0; i < 2; ++i) REQUIRE((*pass)->next(std::chrono::seconds(60)));
  CHECK(shard->position() == place(1, 0, 10));
}

TEST_CASE("the position is that of the delivered batch, not of prefetched ones") {
  const Case each{.fragment_rows = {10}, .ordering = {}, .iterating = {.batch_size = 4}};
  auto shard = shard_of(each, 0, 1);
  auto pass = shard->iterate(each.iterating, /*ahead=*/1);
  std::vector<std::int64_t> places;
  while ((*pass)->next(std::chrono::seconds(60))->state == Next::State::kBatch) {
    places.push_back(shard->position()["rows"].as_int());
  }
  CHECK(places == std::vector<std::int64_t>{0, 4, 8});
  CHECK(shard->position() == place(1, 0, 10));
}

TEST_CASE("a position in other data is rejected within an epoch, and accepted between two") {
  const Case each{.fragment_rows = {10}, .ordering = {}, .iterating = {.batch_size = 4}};
  auto shard = shard_of(each, 0, 1);
  auto refused = shard->load_state(place(1, 4, 12));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("12 rows, but there are 10") != std::string::npos);
  CHECK(shard->load_state(place(1, 0, 12)));
  CHECK_FALSE(shard->load_state(place(1, 11, 10)));
  CHECK_FALSE(shard->load_state(place(-1, 1, 10)));
  CHECK_FALSE(shard->load_state({{"steps", 1}}));
}

TEST_CASE("a position keeps the order of its epoch") {
  const Case each{
      .fragment_rows = {40, 40}, .ordering = {.virtual_shards = 2, .seed = 3}, .iterating = {.batch_size = 8}};
  auto shard = shard_of(each, 0, 1);
  auto pass = shard->iterate(each.iterating);
  for (int i = 0; i < 3; ++i) REQUIRE((*pass)->next(std::chrono::seconds(60)));
  const Dict state = shard->position();
  Case other = each;
  other.ordering = {.virtual_shards = 5, .seed = 8};
  auto later = shard_of(other, 0, 1);
  REQUIRE(later->load_state(state));
  CHECK(batches_of(**later->iterate(each.iterating)) == batches_of(**pass));
}

TEST_CASE("an epoch keeps its local shuffle, and the next one uses that of its own call") {
  const Case each{.fragment_rows = {40, 60}, .ordering = {.virtual_shards = 2, .seed = 3}, .iterating = {}};
  const IterBatchesOptions begun{.batch_size = 8, .local_shuffle_buffer_size = 50, .local_shuffle_seed = 1};
  for (const IterBatchesOptions& other :
       std::vector<IterBatchesOptions>{{.batch_size = 8, .local_shuffle_buffer_size = 50, .local_shuffle_seed = 2},
                                       {.batch_size = 8, .local_shuffle_buffer_size = 7, .local_shuffle_seed = 1},
                                       {.batch_size = 8}}) {
    auto shard = shard_of(each, 0, 1);
    auto pass = shard->iterate(begun);
    for (int i = 0; i < 3; ++i) REQUIRE((*pass)->next(std::chrono::seconds(60)));
    const Dict state = shard->position();
    auto later = shard_of(each, 0, 1);
    REQUIRE(later->load_state(state));
    CHECK(later->position() == state);
    CHECK(batches_of(**later->iterate(other)) == batches_of(**pass));
    // As in a process that was not interrupted.
    CHECK(later->position() == shard->position());
    CHECK(batches_of(**later->iterate(other)) == batches_of(**shard->iterate(other)));
  }
}

TEST_CASE("an epoch keeps its order when the shuffle of the dataset changes") {
  const Case each{.fragment_rows = {40, 60, 10}, .ordering = {.seed = 3}, .iterating = {.batch_size = 8}};
  auto shard = shard_of(each, 0, 1);
  auto pass = shard->iterate(each.iterating);
  for (int i = 0; i < 3; ++i) REQUIRE((*pass)->next(std::chrono::seconds(60)));
  Case other = each;
  other.ordering.shuffle_rows = true;
  auto later = shard_of(other, 0, 1);
  REQUIRE(later->load_state(shard->position()));
  CHECK(batches_of(**later->iterate(each.iterating)) == batches_of(**pass));
  CHECK(batches_of(**later->iterate(each.iterating)) != batches_of(**shard->iterate(each.iterating)));
}

TEST_CASE("a position of an older version, without the dataset's seed, has no local shuffle") {
  const Case each{.fragment_rows = {40}, .ordering = {.shuffle_rows = true, .seed = 3}, .iterating = {.batch_size = 8}};
  auto shard = shard_of(each, 0, 1);
  auto pass = shard->iterate(each.iterating);
  REQUIRE((*pass)->next(std::chrono::seconds(60)));
  Dict state = shard->position();
  state.erase("dataset_seed");
  state.erase("shuffle_fragments");
  Case other = each;
  other.ordering.seed = 4;
  auto later = shard_of(other, 0, 1);
  REQUIRE(later->load_state(state));
  CHECK(batches_of(**later->iterate(each.iterating)) == batches_of(**pass));
  state["shuffle_fragments"] = 3;
  CHECK_FALSE(later->load_state(state));
}

TEST_CASE("batches are padded with complete rows, and every rank gets the requested number") {
  const Case each{
      .fragment_rows = {11}, .ordering = {}, .iterating = {.batch_size = 4, .pad_last = true}, .max_world = 2};
  std::vector<std::int64_t> seen;
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& batch : batches_of(**shard_of(each, rank, 2)->iterate(each.iterating))) {
      CHECK(batch.size() == 4);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  CHECK(seen.size() == 11);
}

TEST_CASE("invalid options are named") {
  const Case each{.fragment_rows = {10}, .ordering = {}, .iterating = {}};
  auto shard = shard_of(each, 0, 1);
  CHECK_FALSE(shard->iterate({.batch_size = 0}));
  CHECK_FALSE(shard->iterate({.prefetch_batches = -1}));
  CHECK_FALSE(shard->iterate({.local_shuffle_buffer_size = -1}));
  CHECK_FALSE(shard_of(each, 0, 4)->iterate({.global_batch_size = 3}));
}

}  // namespace shard_test
