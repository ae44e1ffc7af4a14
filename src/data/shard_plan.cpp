#include "data/shard_plan.h"

#include <algorithm>
#include <limits>
#include <random>

#include "base/config_fields.h"
#include "base/text.h"
#include "storage/run_names.h"

namespace trireme::data {
namespace {

constexpr std::string_view kNameSigns = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

std::int64_t drawn_seed() {
  std::random_device device;
  return static_cast<std::int64_t>((std::uint64_t{device()} << 32 | device()) >> 1);
}

bool is_split(const std::string& name, const DataConfig& config) {
  const auto* list = config.datasets_to_split.get_if<List>();
  if (!list) return true;  // "all": validate() allows nothing else
  return std::any_of(list->begin(), list->end(), [&](const Value& each) { return each.as_string() == name; });
}

}  // namespace

base::Result<void> check_datasets(const std::vector<std::string>& names, const DataConfig& config) {
  for (const auto& name : names) {
    const bool valid = !name.empty() && name.find_first_not_of(kNameSigns) == std::string::npos;
    if (valid && name[0] != '-' && name[0] != '.') continue;
    return base::error("datasets: invalid name '{}'; use letters, digits, '_', '-' and '.'", name);
  }
  const auto* list = config.datasets_to_split.get_if<List>();
  for (const auto& each : list ? *list : List()) {
    const auto& name = each.as_string();
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return base::error("DataConfig.datasets_to_split: no dataset named '{}'{} (datasets: {})", name,
                       base::did_you_mean(name, names), names.empty() ? "none" : base::join(names, ", "));
  }
  return {};
}

base::Result<ShardPlan> plan_shard(const std::string& name, std::int64_t rows, const DataConfig& config,
                                   int max_workers, std::optional<std::int64_t> own_seed) {
  ShardPlan plan{name, rows, is_split(name, config), std::max(max_workers, 1), 0};
  if (rows == 0) return base::error("it has no rows");
  if (plan.split && rows < plan.max_workers) {
    return base::error(
        "it has {} for {}: each needs at least one row; use fewer workers, or remove it from "
        "DataConfig.datasets_to_split so that each reads all of it",
        base::count_of(rows, "row"), base::count_of(plan.max_workers, "worker"));
  }
  const auto seed = own_seed ? own_seed : config.seed;
  plan.seed = seed ? static_cast<std::int64_t>(seed_of(*seed)) : drawn_seed();
  return plan;
}

base::Result<ShardOptions> shard_options(const ShardPlan& plan, const DataConfig& config, const ShardWorker& worker) {
  ShardOptions options;
  options.name = plan.name;
  options.rank = plan.split ? worker.rank : 0;
  options.world = plan.split ? worker.world : 1;
  options.max_world = plan.split ? plan.max_workers : 1;
  options.equal = config.equal;
  options.workers_here = worker.workers_here;
  options.threads = config.num_threads;
  TRIREME_ASSIGN(options.memory_budget, base::memory_budget_of(config));
  options.digest_folder = digest_folder(config, worker.run_folder);
  options.log_rank = worker.rank;
  options.log_world = worker.world;
  options.whole = !plan.split;
  options.attempt = worker.attempt;
  return options;
}

std::optional<std::int64_t> virtual_shards(const ShardPlan& plan, const DataConfig& config) {
  return plan.split ? config.virtual_shards : 1;
}

std::string digest_folder(const DataConfig& config, const std::string& run_folder) {
  if (!config.log_samples || run_folder.empty()) return "";
  return fmt::format("{}/{}", run_folder, storage::kDataFolder);
}

std::uint64_t seed_of(std::int64_t number) {
  return static_cast<std::uint64_t>(number) & static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

}  // namespace trireme::data
