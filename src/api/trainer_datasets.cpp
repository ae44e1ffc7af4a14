#include "api/trainer_datasets.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "api/data_shard.h"
#include "api/train_session.h"
#include "base/config_fields.h"
#include "base/text.h"
#include "control/event_fields.h"
#include "data/digest_log.h"
#include "plan/plan.h"
#include "plan/read.h"
#include "storage/run_names.h"

namespace trireme {
namespace api {
namespace {

constexpr std::string_view kNameSigns = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

std::vector<std::string> names_of(const TrainerDatasets& datasets) {
  std::vector<std::string> names;
  for (const auto& [name, dataset] : datasets.by_name) names.push_back(name);
  return names;
}

bool is_split(const TrainerDatasets& datasets, const std::string& name) {
  const Value& which = datasets.config.datasets_to_split;
  const auto* list = which.get_if<List>();
  if (!list) return true;  // "all": validate() allows nothing else
  return std::any_of(list->begin(), list->end(), [&](const Value& each) { return each.as_string() == name; });
}

// Names of datasets become file names.
base::Result<void> check_names(const TrainerDatasets& datasets) {
  for (const auto& [name, dataset] : datasets.by_name) {
    if (!name.empty() && name.find_first_not_of(kNameSigns) == std::string::npos && !std::strchr("-.", name[0]))
      continue;
    return base::error("datasets: invalid name '{}'; use letters, digits, '_', '-' and '.'", name);
  }
  const auto* list = datasets.config.datasets_to_split.get_if<List>();
  for (const auto& each : list ? *list : List()) {
    const auto& name = each.as_string();
    if (datasets.by_name.contains(name)) continue;
    return base::error("DataConfig.datasets_to_split: no dataset named '{}'{} (datasets: {})", name,
                       base::did_you_mean(name, names_of(datasets)),
                       datasets.by_name.empty() ? "none" : base::join(names_of(datasets), ", "));
  }
  return {};
}

std::int64_t drawn_seed() {
  std::random_device device;
  return static_cast<std::int64_t>((std::uint64_t{device()} << 32 | device()) >> 1);
}

base::Result<Dict> plan_one(const TrainerDatasets& datasets, const std::string& name, const Dataset& dataset,
                            int max_workers) {
  TRIREME_ASSIGN(const auto fragments, dataset.plan()->counted());
  std::int64_t rows = 0;
  for (const auto& each : fragments) rows += each.rows;
  const bool split = is_split(datasets, name);
  if (rows == 0) return base::error("it has no rows");
  if (split && rows < max_workers) {
    return base::error(
        "it has {} for {}: each needs at least one row; use fewer workers, or remove it from "
        "DataConfig.datasets_to_split so that each reads all of it",
        base::count_of(rows, "row"), base::count_of(max_workers, "worker"));
  }
  Dict planned{{"split", split}, {"rows", rows}, {"max_workers", max_workers}};
  planned["seed"] = datasets.config.seed.value_or(drawn_seed());
  planned["counts"] = dataset.plan()->counts();
  return planned;
}

}  // namespace

base::Result<Dict> plan_datasets(const TrainerDatasets& datasets, int max_workers) {
  TRIREME_TRY(check_names(datasets));
  Dict planned;
  for (const auto& [name, dataset] : datasets.by_name) {
    TRIREME_ASSIGN(planned[name], plan_one(datasets, name, dataset, std::max(max_workers, 1)), "the dataset '{}'",
                   name);
  }
  return planned;
}

WorkerDatasets::WorkerDatasets(const TrainerDatasets& datasets, Dict planned, const Context& context)
    : datasets_(datasets), planned_(std::move(planned)), context_(context) {}

base::Result<DataShard> WorkerDatasets::get(const std::string& name) {
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
  const bool split = planned["split"].as_bool();
  data::ShardOptions options;
  options.name = name;
  options.rank = split ? context_.world_rank : 0;
  options.world = split ? context_.world_size : 1;
  options.max_world = split ? static_cast<int>(planned["max_workers"].as_int()) : 1;
  options.equal = datasets_.config.equal;
  options.workers_here = context_.local_world_size;
  options.threads = datasets_.config.num_threads;
  TRIREME_ASSIGN(options.memory_budget, base::memory_budget_of(datasets_.config));
  options.digest_folder = digest_folder();
  options.log_rank = context_.world_rank;
  options.log_world = context_.world_size;
  options.whole = !split;
  options.attempt = context_.attempt;

  auto ordering = plan::ordering_of(*dataset.plan(), static_cast<std::uint64_t>(planned["seed"].as_int()));
  // A rank that reads all rows does so in the dataset's own order.
  ordering.virtual_shards = split ? datasets_.config.virtual_shards : 1;
  ordering.memory_budget = options.memory_budget;
  TRIREME_ASSIGN(auto shard, plan::make_shard(dataset.plan(), ordering, options));
  shards_.push_back(shard);
  auto data = std::make_shared<ShardData>(shard);
  data->place.emplace(detail::PositionSource::Named{"data/" + name}, [shard] { return shard->position(); });
  if (const auto& stored = data->place->stored()) {
    TRIREME_TRY(shard->load_state(*stored), "the checkpoint's position in it");
  }
  return DataShard(std::move(data));
}

Dict WorkerDatasets::totals() const {
  if (made_.empty()) return {};
  DataStats sum;
  for (const auto& [name, shard] : made_) {
    const auto stats = shard.stats();
    sum.rows += stats.rows;
    sum.bytes += stats.bytes;
    sum.wait_s += stats.wait_s;
  }
  return {{"rows", sum.rows}, {"bytes", sum.bytes}, {"wait_s", sum.wait_s}};
}

std::string WorkerDatasets::digest_folder() const {
  const bool logged = datasets_.config.log_samples && !context_.path.empty();
  return logged ? fmt::format("{}/{}", context_.path, storage::kDataFolder) : "";
}

base::Result<void> WorkerDatasets::finish(const Dict& positions) {
  for (auto& shard : shards_) shard->finish();
  const std::string folder = digest_folder();
  if (folder.empty()) return {};
  for (const auto& [name, planned] : planned_) {
    if (made_.contains(name)) continue;
    const Dict* stored = control::dict_of(positions, "data/" + name);
    const auto at = [&](const char* key) { return stored ? control::int_of(*stored, key) : 0; };
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
