#include "engine/capacity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "engine/resources.h"

namespace trireme::engine {
namespace {

using base::amount;

std::string argument(const std::string& name, double value) {
  if (name == "CPU") return fmt::format("num_cpus = {}", amount(value));
  if (name == "GPU") return fmt::format("num_gpus = {}", amount(std::ceil(std::max(0.0, value - kAmountTolerance))));
  return fmt::format("resources = {{\"{}\": {}}}", name, amount(value));
}

// "2 CPUs", "1 GPU", "3 "licence"".
std::string with_unit(double value, const std::string& name) {
  if (name != "CPU" && name != "GPU") return fmt::format("{} \"{}\"", amount(value), name);
  return fmt::format("{} {}{}", amount(value), name, value == 1.0 ? "" : "s");
}

bool was_unlimited(const NodeInfo& before, const std::string& name) { return name == "CPU" && !before.cpus_declared; }

// Resources whose amount decreases. Time-shared CPUs had no limit before.
std::vector<std::string> lowered_names(const NodeInfo& before, const NodeInfo& after) {
  std::set<std::string> names;
  for (const auto& [name, value] : before.total) {
    const bool limited = name != "CPU" || after.cpus_declared;
    if (limited && amount_of(after.total, name) + kAmountTolerance < value) names.insert(name);
  }
  if (!before.cpus_declared && after.cpus_declared) names.insert("CPU");
  return {names.begin(), names.end()};
}

std::string describe(const NodeInfo& before, const NodeInfo& after, const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (const auto& name : names) {
    const std::string now = with_unit(amount_of(after.total, name), name);
    parts.push_back(was_unlimited(before, name)
                        ? "limited to " + now
                        : fmt::format("lowered from {} to {}", amount(amount_of(before.total, name)), now));
  }
  return parts.empty() ? "" : "capacity was " + base::join(parts, " and ");
}

std::set<std::string> devices_of(const NodeInfo& node) {
  std::set<std::string> devices;
  for (const auto& gpu : node.gpus) devices.insert(gpu.device());
  return devices;
}

std::string run_text(const Holding& holding) {
  return fmt::format("run \"{}\" (pid {})", holding.run_name, holding.pid);
}

base::Error in_use(const std::string& name, double asked, const std::vector<Holding>& firm) {
  double sum = 0.0;
  std::map<std::string, double> by_run;
  std::set<std::string> stops;
  for (const auto& holding : firm) {
    const double held = amount_of(holding.resources, name);
    if (held <= kAmountTolerance) continue;
    sum += held;
    by_run[run_text(holding)] += held;
    stops.insert(fmt::format("`trireme stop {}`", holding.run_name));
  }
  std::vector<std::string> holders;
  for (const auto& [run, held] : by_run) holders.push_back(fmt::format("{} has {}", run, amount(held)));
  return base::error(
      "{} is less than what is in use: {} ({}). Options: (1) {} or more; (2) stop a run first: {}; (3) make a run "
      "elastic "
      "(num_workers with a minimum and a maximum): it releases the workers above its minimum",
      argument(name, asked), with_unit(sum, name), base::join(holders, ", "), argument(name, sum),
      base::join({stops.begin(), stops.end()}, " or "));
}

// The totals may be sufficient even if a device that is in use would be removed.
Result<void> check_devices(const NodeInfo& before, const NodeInfo& after, const std::vector<Holding>& firm) {
  const auto devices = devices_of(after);
  for (const auto& holding : firm) {
    for (const auto& share : holding.gpus) {
      if (devices.contains(share.device)) continue;
      const auto gpu = std::find_if(before.gpus.begin(), before.gpus.end(),
                                    [&](const Gpu& each) { return each.device() == share.device; });
      // A device of another driver, whose mask differs from ours.
      if (gpu == before.gpus.end()) continue;
      return base::error(
          "num_gpus = {} removes GPU {}, which {} uses. Options: (1) num_gpus = {} or more; (2) stop the run first: "
          "`trireme stop {}`",
          devices.size(), gpu->id, run_text(holding), gpu - before.gpus.begin() + 1, holding.run_name);
    }
  }
  return {};
}

bool fits_still(const Holding& holding, const std::vector<std::string>& names, const Resources& left,
                const std::set<std::string>& devices) {
  const bool sums = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    const double held = amount_of(holding.resources, name);
    return held <= kAmountTolerance || held <= amount_of(left, name) + kAmountTolerance;
  });
  const bool fewer_gpus = std::find(names.begin(), names.end(), "GPU") != names.end();
  return sums && (!fewer_gpus || std::all_of(holding.gpus.begin(), holding.gpus.end(),
                                             [&](const GpuShare& gpu) { return devices.contains(gpu.device); }));
}

}  // namespace

Result<void> check_amounts(const Capacity& capacity) {
  const auto check = [](const std::string& name, double value) -> Result<void> {
    if (value >= 0.0 && std::isfinite(value)) return {};
    return base::error("{} = {}: must be a number of at least 0", name, value);
  };
  if (capacity.num_cpus) TRIREME_TRY(check("num_cpus", *capacity.num_cpus));
  if (capacity.num_gpus) TRIREME_TRY(check("num_gpus", *capacity.num_gpus));
  for (const auto& [name, value] : capacity.resources) {
    if (name == "CPU" || name == "GPU") {
      return base::error("resources['{}']: use num_{}s instead", name, name == "CPU" ? "cpu" : "gpu");
    }
    TRIREME_TRY(check(fmt::format("resources['{}']", name), value));
  }
  return {};
}

Result<Lowering> lower_capacity(const NodeInfo& before, const NodeInfo& after, const std::vector<Holding>& others,
                                const std::vector<Claim>& own) {
  const auto names = lowered_names(before, after);
  std::vector<Holding> firm = others;
  for (const auto& claim : own) {
    if (!claim.optional) firm.push_back(claim.holding);
  }
  Resources left;
  for (const auto& name : names) {
    double held = 0.0;
    for (const auto& holding : firm) held += amount_of(holding.resources, name);
    left[name] = amount_of(after.total, name) - held;
    if (left[name] < -kAmountTolerance) return in_use(name, amount_of(after.total, name), firm);
    if (name == "GPU") TRIREME_TRY(check_devices(before, after, firm));
  }
  Lowering lowering{.too_much = {}, .why = describe(before, after, names)};
  const auto devices = devices_of(after);
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!own[i].optional) continue;
    if (fits_still(own[i].holding, names, left, devices)) {
      subtract(left, own[i].holding.resources);
    } else {
      lowering.too_much.push_back(i);
    }
  }
  return lowering;
}

}  // namespace trireme::engine
