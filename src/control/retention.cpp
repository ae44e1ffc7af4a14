#include "control/retention.h"

#include <algorithm>

#include "base/metric.h"

namespace trireme::control {
namespace {

// Greater is better; nullopt, a missing score, is less than any number.
std::optional<double> score(const KeptCheckpoint& checkpoint, const CheckpointConfig& config) {
  auto number = base::find_metric(checkpoint.metrics, *config.checkpoint_score_attribute);
  if (number && config.checkpoint_score_order == "min") *number = -*number;
  return number;
}

}  // namespace

std::vector<KeptCheckpoint> ranked(std::vector<KeptCheckpoint> kept, const CheckpointConfig& config) {
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  if (!config.checkpoint_score_attribute) return kept;
  std::stable_sort(kept.begin(), kept.end(),
                   [&](const auto& a, const auto& b) { return score(a, config) < score(b, config); });
  return kept;
}

std::vector<KeptCheckpoint> surplus(const std::vector<KeptCheckpoint>& kept, const CheckpointConfig& config) {
  if (!config.num_to_keep || std::cmp_less_equal(kept.size(), *config.num_to_keep)) return {};
  auto order = ranked(kept, config);
  std::int64_t newest = 0;
  for (const auto& each : order) newest = std::max(newest, each.index);
  order.resize(order.size() - static_cast<std::size_t>(*config.num_to_keep));
  std::erase_if(order, [&](const KeptCheckpoint& each) { return each.index == newest || each.pending(); });
  return order;
}

List to_list(const std::vector<KeptCheckpoint>& kept, const std::string& storage_path) {
  List list;
  for (const auto& each : kept) {
    Dict item{{"name", each.name}, {"path", storage_path + "/" + each.name}, {"index", each.index}};
    item["metrics"] = each.metrics;
    item["status"] = checkpoint::to_string(each.status);
    list.push_back(std::move(item));
  }
  return list;
}

}  // namespace trireme::control
