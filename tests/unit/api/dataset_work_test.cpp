#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "trireme/data.h"

// What functions are called for where several ranks share one fragment.

using trireme::Batch;
using trireme::Dict;
namespace data = trireme::data;

namespace {

// Global batches have as many rows of each of the 12 virtual shards, and so each shard one rank that reads it.
std::vector<std::int64_t> taken(const trireme::Dataset& dataset, int ranks) {
  std::vector<std::int64_t> ids;
  for (const auto& shard : dataset.streaming_split(ranks)) {
    for (const auto& batch : shard.iter_batches({.batch_size = 12})) {
      for (auto id : batch["id"].values<std::int64_t>()) ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<std::int64_t> up_to(std::int64_t end) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(end));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

}  // namespace

TEST_CASE("ranks divide the rows that a function makes among them") {
  std::atomic<std::int64_t> calls = 0;
  const auto made = data::range(1200).map([&](const Dict& row) {
    ++calls;
    return row;
  });
  CHECK(made.num_fragments() == 1);
  CHECK(made.columns().size() == 1);
  CHECK(calls.exchange(0) == 128);  // to see what it gives, the same in every process
  CHECK(taken(made, 4) == up_to(1200));
  CHECK(calls == 1200);
}

TEST_CASE("functions of batches see the same batches, however the rows are divided") {
  std::atomic<std::int64_t> calls = 0;
  const auto made = data::range(1200).map_batches(
      [&](const Batch& batch) -> Dict {
        ++calls;
        REQUIRE(batch["id"].values<std::int64_t>()[0] % 50 == 0);
        REQUIRE(batch.rows() == 50);
        return {{"id", batch["id"]}};
      },
      {.batch_size = 50});
  CHECK(made.columns().size() == 1);
  calls = 0;
  CHECK(taken(made, 4) == up_to(1200));
  CHECK(calls == 24);
}

TEST_CASE("a cut of what a function makes does not make the rest") {
  std::atomic<std::int64_t> calls = 0;
  const auto made = data::range(5000).map([&](const Dict& row) {
    ++calls;
    return row;
  });
  CHECK(made.columns().size() == 1);
  calls = 0;
  CHECK(made.split(10)[5].take_all().front()["id"].as_int() == 2500);
  CHECK(calls == 500);
}
