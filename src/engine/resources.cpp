#include "engine/resources.h"

#include <algorithm>

#include "base/text.h"

namespace trireme::engine {
namespace {

Resources without_zeros(Resources resources) {
  std::erase_if(resources, [](const auto& item) { return item.second <= kAmountTolerance; });
  return resources;
}

}  // namespace

double amount_of(const Resources& resources, const std::string& name) {
  const auto found = resources.find(name);
  return found == resources.end() ? 0.0 : found->second;
}

bool fits(const Resources& need, const Resources& available) {
  return std::all_of(need.begin(), need.end(), [&](const auto& item) {
    return item.second <= amount_of(available, item.first) + kAmountTolerance;
  });
}

void add(Resources& to, const Resources& what) {
  for (const auto& [name, value] : what) to[name] += value;
}

void subtract(Resources& from, const Resources& what) {
  for (const auto& [name, value] : what) {
    const auto found = from.find(name);
    if (found == from.end()) continue;
    found->second -= value;
    if (found->second < kAmountTolerance) found->second = 0.0;
  }
}

std::string to_text(const Resources& resources) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : resources) parts.push_back(fmt::format("\"{}\": {}", name, base::amount(value)));
  return "{" + base::join(parts, ", ") + "}";
}

Resources sum_of(const GangRequest& request) {
  Resources sum = request.trainer;
  for (const auto& bundle : request.bundles) add(sum, bundle);
  return sum;
}

Resources worker_bundle(const ScalingConfig& config) {
  Resources bundle = config.resources_per_worker.value_or(Resources{{"CPU", 1.0}});
  if (config.use_gpu && amount_of(bundle, "GPU") <= kAmountTolerance) bundle["GPU"] = 1.0;
  return without_zeros(std::move(bundle));
}

Resources trainer_bundle(const ScalingConfig& config) {
  return without_zeros(config.trainer_resources.value_or(Resources{{"CPU", 1.0}}));
}

std::optional<std::string> oversubscription_warning(const GangRequest& request, const std::vector<NodeInfo>& nodes) {
  double needed = 0.0;
  for (const auto& bundle : request.bundles) needed += amount_of(bundle, "CPU");
  double present = 0.0;
  bool time_shared = false;
  for (const auto& node : nodes) {
    present += amount_of(node.total, "CPU");
    time_shared = time_shared || !node.cpus_declared;
  }
  // The trainer does not count: it sleeps while the workers compute.
  if (!time_shared || needed <= present + kAmountTolerance) return std::nullopt;
  return fmt::format(
      "{} CPU requested by {}, but this machine has {}: the workers share the cores and run slower; use fewer workers, "
      "or "
      "set num_cpus in init() to make this an error",
      base::amount(needed), base::count_of(request.bundles.size(), "worker"), base::amount(present));
}

}  // namespace trireme::engine
