#include "data/shard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "../temp_dir.h"
#include "data/digest_verify.h"
#include "rows.h"

using namespace trireme;
using namespace trireme::data;
using tests::batches_of;
using tests::RowSource;

namespace {

using Batches = std::vector<std::vector<std::int64_t>>;

struct Case {
  std::vector<std::int64_t> fragment_rows;
  std::int64_t rows_per_chunk = 7;
  Ordering ordering;
  IterOptions iterating;
  int max_world = 1;
};

std::shared_ptr<Shard> shard_of(const Case& each, int rank, int world, ShardOptions options = {}) {
  auto source = std::make_shared<RowSource>(each.fragment_rows, each.rows_per_chunk);
  Table table{source->fragments(), source, {}};
  table.layout = lay_out(table.fragments, each.ordering);
  options.rank = options.log_rank = rank;
  options.world = options.log_world = world;
  options.max_world = each.max_world;
  auto made = Shard::make(std::move(table), options);
  REQUIRE(made);
  return *made;
}

Case random_case(std::mt19937& random) {
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

// The global batches of an epoch, with the ranks of a gang taking turns; sorted, since a batch is a set of rows that
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

  // Up to so many; fewer at the end of the epoch.
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
        const auto rows = tests::rows_in(*next->batch);
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

constexpr std::int64_t kAll = 1'000'000;

// In a dataset that is neither shuffled nor cut.
Dict place(std::int64_t epoch, std::int64_t rows, std::int64_t size) {
  return {{"epoch", epoch}, {"rows", rows}, {"size", size}, {"seed", 0}, {"virtual_shards", 1}, {"window_rows", 0}};
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

TEST_CASE("a shuffled dataset has another order in every epoch, and the same again with the same seed") {
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

TEST_CASE("an iterator that is left begins a new epoch the next time, also after a restart") {
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

TEST_CASE("after the last batch the place is the next epoch's beginning, before anybody has asked for one more") {
  const Case each{.fragment_rows = {10}, .ordering = {}, .iterating = {.batch_size = 4, .drop_last = true}};
  auto shard = shard_of(each, 0, 1);
  auto pass = shard->iterate(each.iterating);
  for (int i = 0; i < 2; ++i) REQUIRE((*pass)->next(std::chrono::seconds(60)));
  CHECK(shard->position() == place(1, 0, 10));
}

TEST_CASE("the place is that of the batch which the user has, whoever takes batches ahead of him") {
  const Case each{.fragment_rows = {10}, .ordering = {}, .iterating = {.batch_size = 4, .ahead = 1}};
  auto shard = shard_of(each, 0, 1);
  auto pass = shard->iterate(each.iterating);
  std::vector<std::int64_t> places;
  while ((*pass)->next(std::chrono::seconds(60))->state == Next::State::kBatch) {
    places.push_back(shard->position()["rows"].as_int());
  }
  CHECK(places == std::vector<std::int64_t>{0, 4, 8});
  CHECK(shard->position() == place(1, 0, 10));
}

TEST_CASE("a place of other data is refused in the middle of an epoch, and welcome between two") {
  const Case each{.fragment_rows = {10}, .ordering = {}, .iterating = {.batch_size = 4}};
  auto shard = shard_of(each, 0, 1);
  auto refused = shard->load_state(place(1, 4, 12));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("12 rows, and there are 10") != std::string::npos);
  CHECK(shard->load_state(place(1, 0, 12)));
  CHECK_FALSE(shard->load_state(place(1, 11, 10)));
  CHECK_FALSE(shard->load_state(place(-1, 1, 10)));
  CHECK_FALSE(shard->load_state({{"steps", 1}}));
}

TEST_CASE("a place keeps the order that its epoch was begun in, whatever would be chosen now") {
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

TEST_CASE("batches of whole rows are padded, and every rank gets as many as asked for") {
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

TEST_CASE("bad options are named") {
  const Case each{.fragment_rows = {10}, .ordering = {}, .iterating = {}};
  auto shard = shard_of(each, 0, 1);
  CHECK_FALSE(shard->iterate({.batch_size = 0}));
  CHECK_FALSE(shard->iterate({.prefetch_batches = -1}));
  CHECK_FALSE(shard->iterate({.local_shuffle_buffer_size = -1}));
  CHECK_FALSE(shard_of(each, 0, 4)->iterate({.global_batch_size = 3}));
}

TEST_CASE("a damaged log is told of, whatever its numbers say") {
  const Case each{.fragment_rows = {40}, .ordering = {}, .iterating = {.batch_size = 8}};
  tests::TempDir folder;
  (void)batches_of(**shard_of(each, 0, 1, {.digest_folder = folder.path()})->iterate(each.iterating));
  const std::string log = folder / "data.0.jsonl";
  std::ifstream file(log);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  CHECK(verify_digests(folder.path())->front().problem == "");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"virtual_shards\":1", "\"virtual_shards\":1000000000000000000"},
           {"\"window_rows\":0", "\"window_rows\":99999999999"},
           {"\"begin\":0", "\"begin\":-5"},
           {"\"end\":40", "\"end\":4000000000000"}}) {
    std::string damaged = text;
    REQUIRE(damaged.find(from) != std::string::npos);
    damaged.replace(damaged.find(from), from.size(), to);
    std::ofstream(log) << damaged;
    CHECK(verify_digests(folder.path())->front().problem.find("cannot be") != std::string::npos);
  }
  std::ofstream(log) << text << "half a li";
  CHECK_FALSE(verify_digests(folder.path()));
}

TEST_CASE("the digests prove that every row was taken once, and tell where not") {
  std::mt19937 random(23);
  for (int trial = 0; trial < 20; ++trial) {
    CAPTURE(trial);
    Case each = random_case(random);
    each.iterating.drop_last = false;
    tests::TempDir folder;
    Dict position;
    std::int64_t epoch = 0;
    for (int attempt = 0; attempt < 30 && epoch < 2; ++attempt) {
      const int world = static_cast<int>(random() % each.max_world) + 1;
      Gang gang(each, world, position, {.digest_folder = folder.path(), .attempt = attempt});
      (void)gang.take(random() % 8 + 1);
      position = gang.position();
      epoch = position["epoch"].as_int();
      (void)gang.take(random() % 3);  // lost with the gang, logged all the same
    }
    auto verdicts = verify_digests(folder.path());
    if (!verdicts) FAIL(verdicts.error().message());
    REQUIRE(!verdicts->empty());
    for (const auto& verdict : *verdicts) {
      CHECK(verdict.problem == "");
      if (verdict.epoch < epoch) CHECK(verdict.seen == verdict.size);
    }
    // A rank that logs a stretch as if it had taken other rows is found out.
    const std::string log = folder / "data.0.jsonl";
    std::ifstream file(log);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto at = text.find("\"digest\":") + 9;
    text.insert(at + (text[at] == '-'), "1");
    std::ofstream(log) << text.substr(0, text.find('\n') + 1) << text.substr(text.find('\n') + 1);
    auto wrong = verify_digests(folder.path());
    if (!wrong) continue;  // the number became too large
    CHECK(std::any_of(wrong->begin(), wrong->end(), [](const auto& verdict) { return !verdict.problem.empty(); }));
  }
}
