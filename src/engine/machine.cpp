#include "engine/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/text.h"
#include "engine/cpus.h"
#include "engine/gpus.h"
#include "engine/placement.h"
#include "engine/resources.h"

namespace trireme::engine {
namespace {

bool needs_gpus(const GangRequest& request) {
  return request.accelerator_type || amount_of(request.trainer, "GPU") > 0.0 ||
         std::any_of(request.bundles.begin(), request.bundles.end(),
                     [](const Resources& bundle) { return amount_of(bundle, "GPU") > 0.0; });
}

void take_away(NodeInfo& node, const Holding& holding) {
  Resources others = holding.resources;
  others.erase("GPU");
  subtract(node.available, others);
  for (const auto& [index, share] : holding.gpus) {
    for (auto& gpu : node.gpus) {
      if (gpu.index == index) gpu.available = std::max(0.0, gpu.available - share);
    }
  }
  double gpus = 0.0;
  for (const auto& gpu : node.gpus) gpus += gpu.available;
  if (!node.gpus.empty()) node.available["GPU"] = gpus;
}

// What of a placement is limited, and so has to be shared with other drivers.
Holding holding_of(const GangRequest& request, const Placement& placement, const NodeInfo& node) {
  Holding holding{.pid = ::getpid(), .run_name = request.run_name, .resources = {}, .gpus = {}};
  std::map<int, double> shares;
  const auto take = [&](const Slot& slot) {
    add(holding.resources, slot.resources);
    for (const auto& [index, share] : gpu_shares(slot)) shares[index] += share;
  };
  take(placement.trainer);
  for (const auto& slot : placement.slots) take(slot);
  if (!node.cpus_declared) holding.resources.erase("CPU");
  for (const auto& [index, share] : shares) holding.gpus.push_back({.index = index, .share = std::min(1.0, share)});
  return holding;
}

// 'run "a" (pid 12) has {"CPU": 6} and run "b" (pid 13) has {"CPU": 2} of {"CPU": 8}', as far as the request asks for
// it.
std::string who_has_it(const GangRequest& request, const NodeInfo& node, const std::vector<Holding>& holdings) {
  const auto of_interest = [&](Resources resources) {
    std::erase_if(resources, [&](const auto& item) {
      const auto asked = [&](const Resources& r) { return amount_of(r, item.first) > 0.0; };
      return !asked(request.trainer) && std::none_of(request.bundles.begin(), request.bundles.end(), asked);
    });
    return resources;
  };
  std::vector<std::string> holders;
  for (const auto& holding : holdings) {
    const Resources held = of_interest(holding.resources);
    if (held.empty()) continue;
    holders.push_back(fmt::format("run \"{}\" (pid {}) has {}", holding.run_name, holding.pid, to_text(held)));
  }
  Resources total = of_interest(node.total);
  if (!node.cpus_declared) total.erase("CPU");
  return fmt::format("{} of {}", base::join(holders, " and "), to_text(total));
}

}  // namespace

Machine::Machine(MachineOptions options)
    // By host: the state folder may lie in a home that several machines share.
    : options_(std::move(options)), ledger_(options_.state_dir / "capacity" / options_.host) {}

void Machine::declare(const MachineOptions& options) {
  std::lock_guard lock(mutex_);
  options_.num_cpus = options.num_cpus;
  options_.num_gpus = options.num_gpus;
  options_.resources = options.resources;
}

NodeInfo Machine::total(bool with_gpus) const {
  MachineOptions options;
  {
    std::lock_guard lock(mutex_);
    options = options_;
  }
  NodeInfo node{.id = "local",
                .host = options.host,
                .total = options.resources,
                .available = {},
                .gpus = {},
                .cpus_declared = options.num_cpus.has_value()};
  node.total["CPU"] = options.num_cpus ? *options.num_cpus : usable_cpus();
  if (with_gpus) {
    std::call_once(gpus_once_, [&] {
      const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
      found_gpus_ = visible_gpus(nvml_devices(), visible ? std::optional<std::string>(visible) : std::nullopt);
    });
    node.gpus = options.num_gpus ? declared_gpus(found_gpus_, *options.num_gpus) : found_gpus_;
    if (!node.gpus.empty()) node.total["GPU"] = static_cast<double>(node.gpus.size());
  }
  node.available = node.total;
  return node;
}

NodeInfo Machine::node() const {
  NodeInfo node = total(true);
  const auto holdings = ledger_.holdings();
  if (!holdings) {
    base::log_warning("what other runs hold of this machine is not known: {}", holdings.error().message());
    return node;
  }
  for (const auto& holding : *holdings) take_away(node, holding);
  return node;
}

Result<void> Machine::check(const GangRequest& request) const {
  return check_capacity(request, {total(needs_gpus(request))});
}

Result<std::variant<Machine::Granted, Machine::Busy>> Machine::reserve(const GangRequest& request) const {
  const NodeInfo whole = total(needs_gpus(request));
  TRIREME_TRY(check_capacity(request, {whole}));
  const auto placement_on_empty = place(request, {whole});
  TRIREME_CHECK(placement_on_empty, "what passed the check has a placement");
  if (holding_of(request, *placement_on_empty, whole).resources.empty()) {
    return std::variant<Granted, Busy>(Granted{placement_on_empty->slots, std::nullopt});
  }
  std::optional<Placement> placement;
  std::string why;
  const auto decide = [&](const std::vector<Holding>& holdings) -> std::optional<Holding> {
    NodeInfo node = whole;
    for (const auto& holding : holdings) take_away(node, holding);
    placement = place(request, {node});
    if (placement) return holding_of(request, *placement, node);
    why = who_has_it(request, node, holdings);
    return {};
  };
  TRIREME_ASSIGN(auto reservation, ledger_.reserve(decide));
  if (!reservation) return std::variant<Granted, Busy>(Busy{std::move(why)});
  return std::variant<Granted, Busy>(Granted{std::move(placement->slots), std::move(reservation)});
}

}  // namespace trireme::engine
