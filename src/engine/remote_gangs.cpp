// The gangs of a remote engine: room on the nodes, and processes.

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <unordered_map>

#include "base/log.h"
#include "base/text.h"
#include "engine/placement.h"
#include "engine/remote_table.h"
#include "engine/resources.h"

namespace trireme::engine {
namespace {

base::MonotonicTime::duration engine_ticks(base::Seconds seconds) {
  constexpr base::Seconds kLongest{365.0 * 24 * 3600};  // an unlimited timeout would overflow
  return std::chrono::duration_cast<base::MonotonicTime::duration>(std::min(seconds, kLongest));
}

void subtract_slot(NodeInfo& node, const Slot& slot) {
  for (const auto& [name, amount] : slot.resources) {
    if (name != "GPU") subtract(node.available, {{name, amount}});
  }
  for (const auto& [id, share] : gpu_shares(slot)) {
    for (auto& gpu : node.gpus) {
      if (gpu.id == id) gpu.available -= share;
    }
  }
  double free = 0.0;
  for (const auto& gpu : node.gpus) free += gpu.available;
  if (node.available.contains("GPU")) node.available["GPU"] = std::max(0.0, free);
}

Value to_value(const Resources& resources) { return base::Codec<Resources>::to(resources); }

}  // namespace

void RemoteTable::tell(GangId id, EngineEvent event) {
  const auto gang = gangs_.find(id);
  if (gang != gangs_.end() && gang->second.handler) gang->second.handler(std::move(event));
}

// In the order of the list, with what is free on each.
std::vector<NodeInfo> RemoteTable::usable_nodes() const {
  std::vector<NodeInfo> usable;
  std::unordered_map<std::string_view, std::size_t> position;
  for (const auto& id : order_) {
    const Node& node = nodes_.at(id);
    if (node.leaving || !node.known || (!places_ && !(node.agent && agents_.at(*node.agent).ready))) continue;
    position[id] = usable.size();
    usable.push_back(node.info);
    usable.back().available = usable.back().total;
  }
  for (const auto& [gang_id, gang] : gangs_) {
    for (const auto& slot : gang.slots) {
      if (const auto found = position.find(slot.node_id); found != position.end()) {
        subtract_slot(usable[found->second], slot);
      }
    }
  }
  return usable;
}

// Whether every agent that is being started has joined, or has failed once.
bool RemoteTable::settled() const {
  return std::none_of(nodes_.begin(), nodes_.end(), [&](const auto& item) {
    const Node& node = item.second;
    return node.agent && !agents_.at(*node.agent).ready && node.failed_starts == 0;
  });
}

std::string RemoteTable::missing_nodes() const {
  std::vector<std::string> missing;
  for (const auto& [id, node] : nodes_) {
    if (!node.trouble.empty() && !node.agent) missing.push_back(fmt::format("{}: {}", node.info.host, node.trouble));
  }
  return base::join(missing, "; ");
}

// While agents join, readers wait, so that thousands of agents do not cause as many lists.
void RemoteTable::publish() {
  const bool known = settled();
  auto nodes = known ? usable_nodes() : std::vector<NodeInfo>();
  const std::lock_guard lock(shared_.mutex);
  shared_.nodes = std::move(nodes);
  shared_.trouble = known ? missing_nodes() : "";
  shared_.known = known;
  shared_.changed.notify_all();
}

void RemoteTable::reserve(GangId id, GangRequest request, EventHandler handler) {
  Gang& gang = gangs_[id];
  gang.deadline = clock_.now() + engine_ticks(request.timeout);
  gang.request = std::move(request);
  gang.handler = std::move(handler);
  // The driver is the trainer, and it is not one of the nodes that it places workers on.
  if (!places_) gang.request.trainer.clear();
  try_reserve(id, gang);
}

void RemoteTable::try_reserve(GangId id, Gang& gang) {
  if (places_) return ask_adapter_for_room(id, gang);
  place_here(id, gang);
}

void RemoteTable::ask_adapter_for_room(GangId id, Gang& gang) {
  if (adapter_gone_) return refuse(id, gang, base::error("the engine's adapter has ended"));
  gang.state = Gang::State::kAsked;
  const GangRequest& request = gang.request;
  List bundles;
  for (const auto& bundle : request.bundles) bundles.push_back(to_value(bundle));
  Dict asked{{"do", "reserve"}, {"gang", static_cast<std::int64_t>(id)}, {"run", request.run_name}};
  asked["bundles"] = std::move(bundles);
  asked["trainer"] = to_value(request.trainer);
  asked["strategy"] = to_string(request.strategy);
  asked["accelerator_type"] = request.accelerator_type ? Value(*request.accelerator_type) : Value();
  if (request.label_selector.empty()) {
    asked["label_selector"] = Value();
  } else {
    asked["label_selector"] = List(request.bundles.size(), base::Codec<Labels>::to(request.label_selector));
  }
  asked["timeout_s"] = std::max(0.0, base::Seconds(gang.deadline - clock_.now()).count());
  asked["optional"] = request.optional;
  adapter_->send(asked);
}

// An older gang that waits for its run's minimum takes precedence.
bool RemoteTable::waits_before(GangId id) const {
  return std::any_of(gangs_.begin(), gangs_.end(), [&](const auto& item) {
    const Gang& gang = item.second;
    return item.first != id && gang.state == Gang::State::kWaiting && !gang.leaving && !gang.request.optional;
  });
}

void RemoteTable::place_here(GangId id, Gang& gang) {
  // A better placement may be possible when all nodes are there.
  if (!settled()) return;
  if (gang.request.optional && waits_before(id)) {
    return refuse(id, gang, base::error("another run is waiting for these resources"));
  }
  const auto nodes = usable_nodes();
  if (auto placement = nodes.empty() ? std::nullopt : place(gang.request, nodes)) {
    gang.slots = std::move(placement->slots);
    return join_agents(id, gang);
  }
  std::string why = fmt::format("{} of {} in use", base::count_of(nodes.size(), "node"), options_.name);
  const std::string missing = missing_nodes();
  const bool fits_when_idle = !nodes.empty() && check_capacity(gang.request, nodes).ok();
  if (!missing.empty()) {
    why = fmt::format("{} of {} are available ({})", nodes.size(), base::count_of(order_.size(), "node"), missing);
  } else if (!fits_when_idle && !gang.request.optional) {
    // It may be that a node was removed; another one may be added.
    why = nodes.empty() ? "no node is available" : check_capacity(gang.request, nodes).error().message();
  }
  on_busy(id, gang, std::move(why));
}

void RemoteTable::on_busy(GangId id, Gang& gang, std::string why) {
  if (gang.request.optional) {
    return refuse(id, gang, base::error("no room for more workers of run \"{}\": {}", gang.request.run_name, why));
  }
  if (clock_.now() >= gang.deadline) {
    return refuse(id, gang,
                  base::error("no room for run \"{}\" within {}: {}", gang.request.run_name,
                              base::duration_text(gang.request.timeout.count()), why));
  }
  if (std::exchange(gang.said_waiting, true)) return;
  tell(id, ReserveWaiting{id, fmt::format("waiting for resources: {}", why)});
}

void RemoteTable::refuse(GangId id, Gang& gang, base::Error error) {
  gang.state = Gang::State::kReserved;  // nothing more happens until it is released
  gang.slots.clear();
  gang.lost = true;
  tell(id, ReserveFailed{id, std::move(error)});
}

// The gang has room; it is reserved as soon as every node has an agent.
void RemoteTable::join_agents(GangId id, Gang& gang) {
  gang.state = Gang::State::kJoining;
  bool all = true;
  for (const auto& slot : gang.slots) {
    if (agent_on(slot.node_id)) continue;
    all = false;
    Node& node = nodes_.at(slot.node_id);
    if (!node.agent && adapter_gone_) return refuse(id, gang, base::error("the engine's adapter has ended"));
    if (!node.agent) start_agent(slot.node_id);
  }
  if (!all) return;
  gang.state = Gang::State::kReserved;
  for (auto& slot : gang.slots) {
    if (slot.host.empty()) slot.host = nodes_.at(slot.node_id).info.host;
  }
  publish();
  tell(id, Reserved{id, gang.slots});
}

void RemoteTable::retry_waiting() {
  std::vector<GangId> waiting;
  for (const auto& [id, gang] : gangs_) {
    if (gang.state == Gang::State::kWaiting && !gang.leaving) waiting.push_back(id);
  }
  for (const GangId id : waiting) {
    const auto gang = gangs_.find(id);
    if (gang != gangs_.end()) try_reserve(id, gang->second);
  }
}

void RemoteTable::lose_gangs_on(const std::string& node, const std::string& why) {
  std::vector<GangId> there;
  for (const auto& [id, gang] : gangs_) {
    const bool on_it =
        std::any_of(gang.slots.begin(), gang.slots.end(), [&](const Slot& slot) { return slot.node_id == node; });
    if (on_it && !gang.lost) there.push_back(id);
  }
  for (const GangId id : there) {
    Gang& gang = gangs_.at(id);
    const std::string host = nodes_.at(node).info.host;
    if (gang.state == Gang::State::kReserved) {
      gang.lost = true;
      tell(id, GangLost{id, fmt::format("node {} is lost: {}", host, why)});
    } else if (places_) {
      // The cluster has placed it on a node that cannot be used.
      if (!adapter_gone_) adapter_->send(Dict{{"do", "release"}, {"gang", static_cast<std::int64_t>(id)}});
      refuse(id, gang, base::error("the agent on {} could not be used: {}", host, why));
    } else {
      gang.slots.clear();
      gang.state = Gang::State::kWaiting;  // it is placed again
    }
  }
}

void RemoteTable::release(GangId id, std::promise<void> done) {
  const auto it = gangs_.find(id);
  if (it == gangs_.end()) return done.set_value();
  Gang& gang = it->second;
  gang.handler = nullptr;
  gang.leaving = std::move(done);
  for (auto& [number, agent] : agents_) {
    const auto first = agent.processes.lower_bound({id, 0});
    if (first == agent.processes.end() || first->first.gang != id) continue;
    gang.awaited.insert(number);
    wire::AgentRelease message;
    message.gang = static_cast<std::int64_t>(id);
    agent.channel->send(message);
    std::erase_if(agent.processes, [&](const auto& item) { return item.first.gang == id; });
  }
  drop_released();
}

void RemoteTable::drop_released() {
  bool freed = false;
  for (auto it = gangs_.begin(); it != gangs_.end();) {
    Gang& gang = it->second;
    if (!gang.leaving || !gang.awaited.empty()) {
      ++it;
      continue;
    }
    if (places_ && !adapter_gone_) {
      adapter_->send(Dict{{"do", "release"}, {"gang", static_cast<std::int64_t>(it->first)}});
    }
    freed = freed || !gang.slots.empty();
    auto done = *std::move(gang.leaving);
    it = gangs_.erase(it);
    done.set_value();
  }
  if (!freed) return;
  publish();
  retry_waiting();
  for (const auto& [id, gang] : gangs_) {
    if (gang.state == Gang::State::kReserved && !gang.lost) tell(id, RoomGrew{id});
  }
}

void RemoteTable::start(GangId id, int bundle, ProcessSpec spec) {
  const auto it = gangs_.find(id);
  if (it == gangs_.end() || it->second.leaving) return;
  const Gang& gang = it->second;
  const auto fail = [&](const std::string& why, bool node_lost) {
    tell(id, StartFailed{id, bundle, base::Error(why), node_lost});
  };
  if (bundle < 0 || static_cast<std::size_t>(bundle) >= gang.slots.size()) {
    return fail(fmt::format("{}: the gang has {} bundles, no bundle {}", spec.label, gang.slots.size(), bundle), false);
  }
  const Slot& slot = gang.slots[static_cast<std::size_t>(bundle)];
  Agent* agent = agent_on(slot.node_id);
  if (!agent || gang.lost) return fail(fmt::format("node {} is lost", slot.host), true);
  wire::AgentStart message;
  message.gang = static_cast<std::int64_t>(id);
  message.bundle = bundle;
  message.host = slot.host;
  message.label = spec.label;
  message.argv = std::move(spec.argv);
  message.env = std::move(spec.env);
  message.cwd = std::move(spec.cwd);
  message.log_path = std::move(spec.log_path);
  message.ticket = std::move(spec.ticket);
  message.visible_gpus = std::move(spec.visible_gpus);
  message.spread = nodes_.size() > 1;
  if (spec.python) {
    message.python = true;
    message.preload = std::move(spec.python->preload);
    message.sys_path = std::move(spec.python->sys_path);
    message.python_argv = std::move(spec.python->argv);
  }
  open_log(message.log_path);
  log_folders_.insert(std::filesystem::path(message.log_path).parent_path().parent_path());
  agent->processes[{id, bundle}] = 0;
  agent->channel->send(message);
}

void RemoteTable::kill(GangId id, int bundle, base::Seconds grace) {
  const auto it = gangs_.find(id);
  if (it == gangs_.end() || bundle < 0 || static_cast<std::size_t>(bundle) >= it->second.slots.size()) return;
  Agent* agent = agent_on(it->second.slots[static_cast<std::size_t>(bundle)].node_id);
  if (!agent) return;
  wire::AgentKill message;
  message.gang = static_cast<std::int64_t>(id);
  message.bundle = bundle;
  message.grace_s = grace.count();
  agent->channel->send(message);
}

void RemoteTable::warm_up(wire::AgentWarmUp message) {
  for (auto& [number, agent] : agents_) {
    if (agent.ready) agent.channel->send(message);
  }
  warm_ups_.push_back(std::move(message));
}

}  // namespace trireme::engine
