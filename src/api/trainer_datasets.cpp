#include "api/trainer_datasets.h"

#include <algorithm>

#include "api/data_shard.h"
#include "api/train_session.h"
#include "base/dict_fields.h"
#include "base/text.h"
#include "data/digest_log.h"
#include "data/shard_plan.h"
#include "plan/plan.h"
#include "plan/read.h"

namespace trireme {
namespace api {
namespace {

std::vector<std::string> names_of(const TrainerDatasets& datasets) {
  std::vector<std::string> names;
  for (const auto& [name, dataset] : datasets.by_name) names.push_back(name);
  return names;
}

base::Result<Dict> plan_one(const TrainerDatasets& datasets, const std::string& name, const Dataset& dataset,
                            int max_workers) {
  TRIREME_ASSIGN(const auto fragments, dataset.plan()->counted());
  std::int64_t rows = 0;
  for (const auto& each : fragments) rows += each.rows;
  const auto shuffle = dataset.plan()->shuffle();
  TRIREME_ASSIGN(const auto shard_plan,
                 data::plan_shard(name, rows, datasets.config, max_workers, shuffle ? shuffle->seed : std::nullopt));
  Dict planned = base::to_dict(shard_plan);
  planned["counts"] = dataset.plan()->counts();
  return planned;
}

}  // namespace

base::Result<Dict> plan_datasets(const TrainerDatasets& datasets, int max_workers) {
  TRIREME_TRY(data::check_datasets(names_of(datasets), datasets.config));
  Dict planned;
  for (const auto& [name, dataset] : datasets.by_name) {
    TRIREME_ASSIGN(planned[name], plan_one(datasets, name, dataset, max_workers), "the dataset '{}'", name);
  }
  return planned;
}

WorkerDatasets::WorkerDatasets(const TrainerDatasets& datasets, Dict planned, const Context& context)
    : datasets_(datasets), planned_(std::move(planned)), context_(context) {}

base::Result<DataShard> WorkerDatasets::get(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (auto found = made_.find(name); found != made_.end()) return found->second;
  const auto dataset = datasets_.by_name.find(name);
  if (dataset == datasets_.by_name.end() || !planned_.contains(name)) {
    if (datasets_.by_name.empty()) {
      return base::error("no dataset named '{}': the trainer has no datasets; add it to TrainerOptions.datasets", name);
    }
    return base::error("no dataset named '{}'{} (datasets: {})", name, base::did_you_mean(name, names_of(datasets_)),
                       base::join(names_of(datasets_), ", "));
  }
  TRIREME_ASSIGN(auto shard, make(name, dataset->second), "the dataset '{}'", name);
  made_.emplace(name, shard);
  return shard;
}

base::Result<DataShard> WorkerDatasets::make(const std::string& name, const Dataset& dataset) {
  const Dict& planned = planned_.at(name).as_dict();
  TRIREME_TRY(
      dataset.plan()->take_counts(planned["counts"].as_dict()),
      "this worker created a different dataset than the driver; main() must create the same one in every process");
  Dict fields = planned;
  fields.erase("counts");
  TRIREME_ASSIGN(const auto shard_plan, base::from_dict<data::ShardPlan>(fields, "ShardPlan"));
  const data::ShardWorker worker{context_.world_rank, context_.world_size, context_.local_world_size, context_.attempt,
                                 context_.path};
  TRIREME_ASSIGN(auto options, data::shard_options(shard_plan, datasets_.config, worker));
  auto ordering = plan::ordering_of(*dataset.plan(), static_cast<std::uint64_t>(shard_plan.seed));
  ordering.virtual_shards = data::virtual_shards(shard_plan, datasets_.config);
  ordering.memory_budget = options.memory_budget;
  TRIREME_ASSIGN(auto shard, plan::make_shard(dataset.plan(), ordering, options));
  shards_.emplace_back(name, shard);
  auto data = std::make_shared<ShardData>(shard);
  data->place.emplace(detail::PositionSource::Named{"data/" + name}, [shard] { return shard->position(); });
  if (const auto& stored = data->place->stored()) {
    TRIREME_TRY(shard->load_state(*stored), "the checkpoint's position in it");
  }
  return DataShard(std::move(data));
}

Dict WorkerDatasets::totals() const {
  std::lock_guard lock(mutex_);
  if (made_.empty()) return {};
  DataStats sum;
  for (const auto& [name, shard] : made_) {
    const auto stats = shard.stats();
    sum.rows += stats.rows;
    sum.bytes += stats.bytes;
    sum.wait_s += stats.wait_s;
  }
  Dict totals{{"rows", sum.rows}, {"bytes", sum.bytes}, {"wait_s", sum.wait_s}};
  Dict logged;
  for (const auto& [name, shard] : shards_) {
    if (const auto rows = shard->logged_rows()) logged[name] = *rows;
  }
  if (!logged.empty()) totals["logged"] = std::move(logged);
  return totals;
}

base::Result<void> WorkerDatasets::finish(const Dict& positions) {
  for (auto& [name, shard] : shards_) shard->finish();
  const std::string folder = data::digest_folder(datasets_.config, context_.path);
  if (folder.empty()) return {};
  for (const auto& [name, planned] : planned_) {
    if (made_.contains(name)) continue;
    const Dict* stored = base::dict_of(positions, "data/" + name);
    const auto at = [&](const char* key) { return stored ? base::int_of(*stored, key) : 0; };
    const data::DigestContext context{name, context_.world_rank, context_.world_size, context_.attempt};
    TRIREME_TRY(data::DigestLog::finish_unused(folder, context, at("epoch"), at("rows")),
                "could not log the samples of '{}'", name);
  }
  return {};
}

}  // namespace api

DataShard get_dataset_shard(const std::string& name) {
  auto& current = api::current("get_dataset_shard");
  TRIREME_CHECK(current.shards, "a function runs without its datasets");
  return api::value_or_throw(current.shards->get(name));
}

}  // namespace trireme
