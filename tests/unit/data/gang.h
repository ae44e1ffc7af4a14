#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "data/shard.h"
#include "rows.h"

// Gangs of ranks in one process, over datasets whose rows contain their own index.

namespace trireme::tests {

using namespace trireme::data;

using Batches = std::vector<std::vector<std::int64_t>>;

struct Case {
  std::vector<std::int64_t> fragment_rows;
  std::int64_t rows_per_chunk = 7;
  Ordering ordering;
  IterBatchesOptions iterating;
  int max_world = 1;
};

inline std::shared_ptr<Shard> shard_of(const Case& each, int rank, int world, ShardOptions options = {}) {
  auto source = std::make_shared<RowSource>(each.fragment_rows, each.rows_per_chunk);
  Table table{source->fragments(), source, {}};
  table.layout = lay_out(table.fragments, each.ordering);
  options.log_rank = rank;
  options.log_world = world;
  options.rank = options.whole ? 0 : rank;
  options.world = options.whole ? 1 : world;
  options.max_world = options.whole ? 1 : each.max_world;
  auto made = Shard::make(std::move(table), options);
  REQUIRE(made);
  return *made;
}

inline Case random_case(std::mt19937& random) {
  Case made;
  made.fragment_rows.resize(random() % 6 + 1);
  for (auto& rows : made.fragment_rows) rows = random() % 60 + 4;
  made.rows_per_chunk = random() % 30 + 1;
  made.ordering.virtual_shards = random() % 5 + 1;
  made.ordering.seed = random();
  made.ordering.shuffle_fragments = random() % 2;
  made.ordering.shuffle_rows = random() % 2;
  if (random() % 2) made.ordering.window_rows = random() % 50 + 1;
  made.max_world = static_cast<int>(random() % 4 + 1);
  made.iterating.global_batch_size = made.max_world + static_cast<std::int64_t>(random() % 30);
  made.iterating.drop_last = random() % 5 == 0;
  made.iterating.prefetch_batches = random() % 4;
  if (random() % 3 == 0) {
    made.iterating.local_shuffle_buffer_size = random() % 40 + 1;
    made.iterating.local_shuffle_seed = random() % 2 ? std::optional<std::int64_t>(5) : std::nullopt;
  }
  return made;
}

// The global batches of an epoch, with the ranks of a gang taking turns. Sorted, since a batch is a set of rows that
// each rank has in its own order.
class Gang {
 public:
  Gang(const Case& each, int world, const Dict& position, ShardOptions options = {}) {
    for (int rank = 0; rank < world; ++rank) {
      shards_.push_back(shard_of(each, rank, world, options));
      if (position.size() > 0) REQUIRE(shards_.back()->load_state(position));
    }
    for (auto& shard : shards_) {
      auto pass = shard->iterate(each.iterating);
      if (!pass) FAIL(pass.error().message());
      passes_.push_back(*std::move(pass));
    }
  }

  // Up to this number; fewer at the end of the epoch.
  Batches take(std::int64_t most) {
    Batches taken;
    for (std::int64_t i = 0; i < most; ++i) {
      std::vector<std::int64_t> batch;
      int ended = 0;
      for (auto& pass : passes_) {
        auto next = pass->next(std::chrono::seconds(60));
        REQUIRE(next);
        if (next->state == Next::State::kEnd) ++ended;
        if (!next->batch) continue;
        const auto rows = rows_in(*next->batch);
        CHECK(!rows.empty());
        batch.insert(batch.end(), rows.begin(), rows.end());
      }
      // Every rank makes the same number of steps.
      CHECK((ended == 0 || ended == static_cast<int>(passes_.size())));
      if (ended) break;
      std::sort(batch.begin(), batch.end());
      taken.push_back(batch);
    }
    return taken;
  }

  Dict position() {
    Dict first = shards_.front()->position();
    for (auto& shard : shards_) CHECK(shard->position() == first);
    return first;
  }
  std::int64_t epoch() const { return passes_.front()->epoch(); }

 private:
  std::vector<std::shared_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<Pass>> passes_;
};

}  // namespace trireme::tests
