#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "plan/plan.h"
#include "trireme/data.h"
#include "trireme/data_source.h"

namespace dataset_work_test {

// What functions are called for where several ranks share one fragment.

using trireme::Batch;
using trireme::Dict;
namespace data = trireme::data;

namespace {

// Global batches have equally many rows of each of the 12 virtual shards, so that one rank reads each shard.
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

TEST_CASE("ranks split the work of a function") {
  std::atomic<std::int64_t> calls = 0;
  const auto made = data::range(1200).map([&](const Dict& row) {
    ++calls;
    return row;
  });
  CHECK(made.num_fragments() == 1);
  CHECK(made.columns().size() == 1);
  CHECK(calls.exchange(0) == 128);  // to find the columns, the same in every process
  CHECK(taken(made, 4) == up_to(1200));
  CHECK(calls == 1200);
}

TEST_CASE("functions see the same batches for any number of ranks") {
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

TEST_CASE("a slice of a function's output does not compute the rest") {
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

namespace {

class Decoded final : public trireme::DataSource {
 public:
  explicit Decoded(std::int64_t bytes) : bytes_(bytes) {}
  std::string name() const override { return "decoded"; }
  std::vector<trireme::DataFragment> list() override { return {{"part", 1, 8}}; }
  std::int64_t open(std::size_t, std::int64_t, ArrowArrayStream*) override { throw std::runtime_error("nobody reads"); }
  std::int64_t decoding_bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_;
};

}  // namespace

TEST_CASE("a union needs the memory of its largest decoder, a zip that of both") {
  const auto small = data::from_source(std::make_shared<Decoded>(3));
  const auto large = data::from_source(std::make_shared<Decoded>(5));
  CHECK(small.union_with(large).union_with(small).plan()->decoding_bytes() == 5);
  CHECK(small.zip(large).plan()->decoding_bytes() == 8);
  CHECK(data::range(3).plan()->decoding_bytes() == 0);
}

}  // namespace dataset_work_test
