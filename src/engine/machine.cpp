#include "engine/machine.h"

#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "engine/cpus.h"
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
  for (const auto& [device, share] : holding.gpus) {
    for (auto& gpu : node.gpus) {
      if (gpu.device() == device) gpu.available = std::max(0.0, gpu.available - share);
    }
  }
  double gpus = 0.0;
  for (const auto& gpu : node.gpus) gpus += gpu.available;
  if (!node.gpus.empty()) node.available["GPU"] = gpus;
}

Holding use_of(const GangRequest& request, const Placement& placement, const NodeInfo& node) {
  Holding holding{.pid = ::getpid(), .run_name = request.run_name, .resources = {}, .gpus = {}};
  std::map<std::string, double> shares;  // by id
  const auto take = [&](const Slot& slot) {
    add(holding.resources, slot.resources);
    for (const auto& [id, share] : gpu_shares(slot)) shares[id] += share;
  };
  take(placement.trainer);
  for (const auto& slot : placement.slots) take(slot);
  for (const auto& gpu : node.gpus) {
    const auto share = shares.find(gpu.id);
    if (share != shares.end()) holding.gpus.push_back({.device = gpu.device(), .share = std::min(1.0, share->second)});
  }
  return holding;
}

// The limited part of it, which is shared with other drivers.
Holding limited(Holding use, bool cpus_declared) {
  if (!cpus_declared) use.resources.erase("CPU");
  return use;
}

// More than before, or not known to be less. A new limit on time-shared CPUs is not growth.
bool may_have_grown(const MachineOptions& before, const MachineOptions& after) {
  const bool cpus = before.num_cpus && (!after.num_cpus || *after.num_cpus > *before.num_cpus);
  const bool gpus =
      before.num_gpus != after.num_gpus && (!before.num_gpus || !after.num_gpus || *after.num_gpus > *before.num_gpus);
  return cpus || gpus || std::any_of(after.resources.begin(), after.resources.end(), [&](const auto& item) {
           return item.second > amount_of(before.resources, item.first);
         });
}

void apply(const Capacity& asked, MachineOptions& options) {
  if (asked.num_cpus) options.num_cpus = asked.num_cpus;
  if (asked.num_gpus) options.num_gpus = asked.num_gpus;
  for (const auto& [name, value] : asked.resources) options.resources[name] = value;
}

// 'run "a" (pid 12) has {"CPU": 6} and run "b" (pid 13) has {"CPU": 2} of {"CPU": 8}', limited to the requested
// resources.
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
    // One folder per host: the state folder may be in a home directory that several machines share.
    : options_(std::move(options)), ledger_(options_.state_dir / "capacity" / options_.host) {}

bool Machine::declare(const MachineOptions& options) {
  std::lock_guard lock(mutex_);
  const bool grew = may_have_grown(options_, options);
  options_.num_cpus = options.num_cpus;
  options_.num_gpus = options.num_gpus;
  options_.resources = options.resources;
  return grew;
}

Result<Machine::Change> Machine::set_capacity(const Capacity& asked, const std::vector<Occupant>& occupants) {
  TRIREME_TRY(check_amounts(asked));
  const MachineOptions now = options();
  MachineOptions wanted = now;
  apply(asked, wanted);
  const bool with_gpus = asked.num_gpus.has_value();
  const NodeInfo before = total(now, with_gpus);
  const NodeInfo after = total(wanted, with_gpus);
  Change change{.lowering = {}, .grew = may_have_grown(now, wanted)};
  std::vector<Claim> claims;
  std::vector<std::optional<Reservation>*> reservations;
  std::vector<Holding> holdings;
  for (const auto& one : occupants) {
    claims.push_back({.holding = one.leaving ? Holding{} : one.use, .optional = one.optional});
    reservations.push_back(&one.reservation);
    holdings.push_back(limited(one.use, after.cpus_declared));
  }
  const auto decide = [&](const std::vector<Holding>& others) -> Result<std::vector<Holding>> {
    TRIREME_ASSIGN(change.lowering, lower_capacity(before, after, others, claims));
    return holdings;
  };
  TRIREME_TRY(ledger_.revise(reservations, decide));
  std::lock_guard lock(mutex_);
  apply(asked, options_);
  return change;
}

bool Machine::cpus_declared() const {
  std::lock_guard lock(mutex_);
  return options_.num_cpus.has_value();
}

MachineOptions Machine::options() const {
  std::lock_guard lock(mutex_);
  return options_;
}

NodeInfo Machine::total(const MachineOptions& options, bool with_gpus) const {
  NodeInfo node{.id = "local",
                .host = options.host,
                .total = options.resources,
                .available = {},
                .gpus = {},
                .cpus_declared = options.num_cpus.has_value()};
  node.total["CPU"] = options.num_cpus ? *options.num_cpus : usable_cpus();
  if (with_gpus) {
    const GpuInventory& here = inventory();
    node.gpus = options.num_gpus ? declared_gpus(here, *options.num_gpus) : here.gpus;
    if (options.num_gpus && node.gpus.size() < static_cast<std::size_t>(std::max(0, *options.num_gpus))) {
      std::call_once(masked_once_, [&] {
        base::log_warning("num_gpus = {}, but {} allows only {}: no other device is used; change the list, or num_gpus",
                          *options.num_gpus, here.accelerator.variable, base::count_of(node.gpus.size(), "device"));
      });
    }
    if (!node.gpus.empty()) node.total["GPU"] = static_cast<double>(node.gpus.size());
  }
  node.available = node.total;
  return node;
}

const GpuInventory& Machine::inventory() const {
  std::call_once(gpus_once_, [&] {
    inventory_ = find_gpus();
    for (const auto& warning : inventory_.warnings) base::log_warning("{}", warning);
  });
  return inventory_;
}

std::map<std::string, std::string> Machine::visible_variables(const std::vector<std::string>& gpus) const {
  return engine::visible_variables(inventory(), gpus);
}

NodeInfo Machine::node() const {
  NodeInfo node = total(options(), true);
  const auto holdings = ledger_.holdings();
  if (!holdings) {
    base::log_warning("could not read the reservations of other runs: {}", holdings.error().message());
    return node;
  }
  for (const auto& holding : *holdings) take_away(node, holding);
  return node;
}

Result<void> Machine::check(const GangRequest& request) const {
  TRIREME_TRY(refuse_labels(request));
  return check_capacity(request, {total(options(), needs_gpus(request))});
}

Result<std::variant<Machine::Granted, Machine::Busy>> Machine::reserve(const GangRequest& request) const {
  const NodeInfo whole = total(options(), needs_gpus(request));
  TRIREME_TRY(check_capacity(request, {whole}));
  const auto placement_on_empty = place(request, {whole});
  TRIREME_CHECK(placement_on_empty, "no placement for a request that passed the check");
  Holding use = use_of(request, *placement_on_empty, whole);
  if (limited(use, whole.cpus_declared).resources.empty()) {
    return std::variant<Granted, Busy>(Granted{placement_on_empty->slots, std::move(use), std::nullopt});
  }
  std::optional<Placement> placement;
  std::string why;
  const auto decide = [&](const std::vector<Holding>& holdings) -> std::optional<Holding> {
    NodeInfo node = whole;
    for (const auto& holding : holdings) take_away(node, holding);
    placement = place(request, {node});
    if (placement) {
      use = use_of(request, *placement, node);
      return limited(use, node.cpus_declared);
    }
    why = who_has_it(request, node, holdings);
    return {};
  };
  TRIREME_ASSIGN(auto reservation, ledger_.reserve(decide));
  if (!reservation) return std::variant<Granted, Busy>(Busy{std::move(why)});
  return std::variant<Granted, Busy>(Granted{std::move(placement->slots), std::move(use), std::move(reservation)});
}

}  // namespace trireme::engine
