#include "data/shard_plan.h"

#include <doctest/doctest.h>

namespace shard_plan_test {

using namespace trireme;
using namespace trireme::data;

namespace {

std::string problem(const std::vector<std::string>& names, Value split = "all") {
  DataConfig config;
  config.datasets_to_split = std::move(split);
  const auto checked = check_datasets(names, config);
  return checked ? "" : checked.error().message();
}

}  // namespace

TEST_CASE("names of datasets") {
  CHECK(problem({}) == "");
  CHECK(problem({"train", "_valid-2.x", "9"}) == "");
  for (const char* invalid : {"", "a/b", ".a", "-a", "a b", "ä"}) {
    CHECK(problem({"train", invalid}).starts_with("datasets: invalid name '"));
  }
  CHECK(problem({"train", "valid"}, List{"train"}) == "");
  CHECK(problem({"train"}, List{"tran"}) ==
        "DataConfig.datasets_to_split: no dataset named 'tran'; did you mean 'train'? (datasets: train)");
  CHECK(problem({}, List{"x"}) == "DataConfig.datasets_to_split: no dataset named 'x' (datasets: none)");
}

TEST_CASE("a dataset is planned, or too small") {
  struct Row {
    std::int64_t rows;
    int max_workers;
    Value split;
    std::string problem;  // its beginning
    bool is_split;
  };
  const Row kTable[] = {
      {0, 1, "all", "it has no rows", true},
      {0, 1, List{}, "it has no rows", false},
      {1, 1, "all", "", true},
      {1, 0, "all", "", true},
      {2, 3, "all", "it has 2 rows for 3 workers: each needs at least one row", true},
      {2, 3, List{"other"}, "", false},
      {3, 3, List{"train", "other"}, "", true},
  };
  for (const auto& row : kTable) {
    DataConfig config;
    config.datasets_to_split = row.split;
    const auto plan = plan_shard("train", row.rows, config, row.max_workers, {});
    CHECK((plan ? "" : plan.error().message()).starts_with(row.problem));
    CHECK(plan.ok() == row.problem.empty());
    if (!plan) continue;
    CHECK(plan->split == row.is_split);
    CHECK(plan->max_workers == std::max(row.max_workers, 1));
    CHECK(plan->seed >= 0);
  }
}

TEST_CASE("the dataset's seed comes before the configured one") {
  DataConfig config;
  const auto drawn = [&] { return plan_shard("x", 9, config, 1, {}).value().seed; };
  CHECK(drawn() != drawn());
  config.seed = 7;
  CHECK(drawn() == 7);
  CHECK(plan_shard("x", 9, config, 1, 3).value().seed == 3);
  config.seed = -1;  // Python's -1 % 2**63
  CHECK(drawn() == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("a worker's part") {
  DataConfig config;
  config.equal = true;
  config.memory_budget = "1GiB";
  config.num_threads = 3;
  config.virtual_shards = 12;
  config.log_samples = true;
  const ShardWorker worker{2, 4, 2, 5, "/runs/a"};
  ShardPlan plan{"train", 100, true, 8, 1};
  auto options = shard_options(plan, config, worker).value();
  CHECK(options ==
        ShardOptions{"train", 2, 4, 8, true, 2, 3, 0, std::int64_t{1} << 30, 0, false, "/runs/a/data", 2, 4, false, 5});
  CHECK(virtual_shards(plan, config) == 12);

  plan.split = false;
  options = shard_options(plan, config, worker).value();
  CHECK(options.rank == 0);
  CHECK(options.world == 1);
  CHECK(options.max_world == 1);
  CHECK(options.whole);
  CHECK(options.log_rank == 2);
  CHECK(options.log_world == 4);
  CHECK(virtual_shards(plan, config) == 1);

  config.log_samples = false;
  CHECK(shard_options(plan, config, worker).value().digest_folder == "");
  config.memory_budget = "lots";
  CHECK_FALSE(shard_options(plan, config, worker));
}

}  // namespace shard_plan_test
