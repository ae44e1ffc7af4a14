// The agents of a remote engine: how they join, what they report, and when they count as lost.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/dict_fields.h"
#include "base/fields.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/remote_table.h"
#include "wire/ticket.h"

namespace trireme::engine {
namespace {

constexpr double kHeartbeat = 0.5;
constexpr std::chrono::milliseconds kTick{250};
// Every agent gets the list of all of them, so it is sent when no other one has joined or left for this long.
constexpr std::chrono::milliseconds kAgentsSettle{200};
constexpr std::chrono::seconds kNodesPeriod{2};  // while a gang waits for room

ExitStatus status_of(const wire::AgentExited& message) {
  if (message.kind == "code") return {.kind = ExitStatus::Kind::kCode, .value = message.value};
  if (message.kind == "signal") return {.kind = ExitStatus::Kind::kSignal, .value = message.value};
  return {};
}

// An agent that fails at once is not started again and again.
base::MonotonicTime::duration pause_after(int failures) {
  return std::chrono::seconds(std::min(30, 1 << std::min(failures, 5)));
}

BundleId bundle_of(std::int64_t gang, int bundle) { return {static_cast<GangId>(gang), bundle}; }

}  // namespace

void RemoteTable::start_agent(const std::string& id) {
  Node& node = nodes_.at(id);
  if (node.agent || adapter_gone_) return;
  const int number = next_agent_++;
  node.agent = number;
  Agent& agent = agents_[number];
  agent.node = id;
  agent.heard = clock_.now();
  Dict ticket = wire::make_ticket(server_->address(), secret_, id_, wire::agent_key_name(number));
  ticket["agent"] = number;
  ticket["peers_secret"] = base::to_hex(peers_secret_);
  ticket["first_port"] = settings_.first_port;
  ticket["last_port"] = settings_.last_port;
  Dict request{{"do", "start_agent"}, {"agent", std::to_string(number)}, {"node", id}};
  request["env"] = base::Codec<std::map<std::string, std::string>>::to(options_.agent_env);
  request["argv"] = List(options_.agent.begin(), options_.agent.end());
  request["ticket"] = base::to_json(ticket);
  adapter_->send(request);
}

void RemoteTable::start_missing_agents() {
  const auto now = clock_.now();
  for (auto& [id, node] : nodes_) {
    if (node.listed && !node.agent && node.next_start <= now) start_agent(id);
  }
}

RemoteTable::Agent* RemoteTable::agent_on(const std::string& id) {
  const auto node = nodes_.find(id);
  if (node == nodes_.end() || !node->second.agent) return nullptr;
  Agent& agent = agents_.at(*node->second.agent);
  return agent.ready ? &agent : nullptr;
}

base::Result<wire::Welcome> RemoteTable::admit(const wire::Hello& hello) {
  if (hello.role != "agent" || hello.run_id != id_) return base::error("it does not belong to this engine");
  if (!hello.key_name.empty() && hello.key_name != wire::agent_key_name(hello.rank)) {
    return base::error("its key is of {}, not of agent {}", hello.key_name, hello.rank);
  }
  const auto agent = agents_.find(hello.rank);
  if (agent == agents_.end()) return base::error("agent {} is no longer expected", hello.rank);
  if (agent->second.channel) return base::error("agent {} is already connected", hello.rank);
  wire::Welcome welcome;
  welcome.heartbeat_s = kHeartbeat;
  welcome.lease_s = settings_.lease_s;
  return welcome;
}

void RemoteTable::opened(const std::shared_ptr<wire::Channel>& channel) {
  const auto agent = agents_.find(channel->peer().rank);
  if (agent == agents_.end()) return channel->close();
  agent->second.channel = channel;
  agent->second.heard = clock_.now();
}

void RemoteTable::closed(const std::shared_ptr<wire::Channel>& channel, const base::Error& why) {
  const auto agent = agents_.find(channel->peer().rank);
  if (agent == agents_.end() || agent->second.channel != channel) return;
  lose_agent(agent->first, fmt::format("its agent's connection was {}", why.message()));
}

void RemoteTable::refused(const std::string& from, const base::Error& why) {
  base::log_warning("engine {}: refused a connection from {}: {}", options_.name, from, why.message());
}

void RemoteTable::received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) {
  const int number = channel->peer().rank;
  const auto agent = agents_.find(number);
  if (agent == agents_.end() || agent->second.channel != channel) return channel->close();
  agent->second.heard = clock_.now();
  auto taken = std::visit([&](auto& held) { return take(number, held); }, message);
  if (taken) return;
  base::log_warning("the agent on {} {}; its connection is closed", agent->second.node, taken.error().message());
  channel->close();
}

template <typename T>
Result<void> RemoteTable::take(int, T&) {
  return base::error("sent a message that agents do not send");
}

Result<void> RemoteTable::take(int number, wire::AgentInfo& message) {
  Agent& agent = agents_.at(number);
  if (agent.ready) return base::error("described its node twice");
  if (message.version != TRIREME_VERSION) {
    lose_agent(number, fmt::format("trireme {} is installed there, but the driver has {}; install the same version",
                                   message.version, TRIREME_VERSION));
    return {};
  }
  Node& node = nodes_.at(agent.node);
  agent.ready = true;
  node.leaving = false;  // the notice was for an earlier agent
  node.trouble.clear();
  node.failed_starts = 0;
  if (!node.known) {
    node.info.total.try_emplace("CPU", message.cpus);
    if (node.info.gpus.empty() && !node.info.total.contains("GPU")) {
      for (const auto& gpu : message.gpus) {
        node.info.gpus.push_back(
            {.id = base::text_of(gpu, "id"), .uuid = base::text_of(gpu, "uuid"), .type = base::text_of(gpu, "type")});
      }
      if (!node.info.gpus.empty()) node.info.total["GPU"] = static_cast<double>(node.info.gpus.size());
    }
    node.known = true;
  }
  agent.memory_address = std::move(message.memory_address);
  if (!agent.memory_address.empty()) agents_changed();
  for (const auto& warm_up : warm_ups_) agent.channel->send(warm_up);
  publish();
  std::vector<GangId> joining;
  for (const auto& [id, gang] : gangs_) {
    if (gang.state == Gang::State::kJoining) joining.push_back(id);
  }
  for (const GangId id : joining) join_agents(id, gangs_.at(id));
  retry_waiting();
  for (const auto& [id, gang] : gangs_) {
    if (gang.state == Gang::State::kReserved) tell(id, RoomGrew{id});
  }
  return {};
}

Result<void> RemoteTable::take(int number, wire::Heartbeat& message) {
  agents_.at(number).channel->send(message);
  return {};
}

Result<void> RemoteTable::take(int number, wire::PreemptionNotice& message) {
  const std::string node = agents_.at(number).node;
  if (adapter_gone_) {
    on_preempt(node, message.why, std::nullopt);
    return {};
  }
  // A signal has no deadline, but the cluster may know it.
  ask(Dict{{"do", "time_left"}, {"node", node}}, [this, node, why = message.why](Result<Value> answer) {
    const bool known = answer && answer->is_number();
    on_preempt(node, why, known ? std::optional(base::Seconds(std::max(0.0, answer->as_double()))) : std::nullopt);
  });
  return {};
}

Result<void> RemoteTable::take(int number, wire::AgentStarted& message) {
  const BundleId id = bundle_of(message.gang, message.bundle);
  auto& processes = agents_.at(number).processes;
  const auto process = processes.find(id);
  if (process == processes.end()) return {};  // its gang was released
  process->second = message.pid;
  tell(id.gang, Started{id.gang, id.bundle, message.pid, message.forked});
  return {};
}

Result<void> RemoteTable::take(int number, wire::AgentStartFailed& message) {
  const BundleId id = bundle_of(message.gang, message.bundle);
  if (agents_.at(number).processes.erase(id) == 0) return {};
  tell(id.gang, StartFailed{id.gang, id.bundle, base::Error(message.why)});
  return {};
}

Result<void> RemoteTable::take(int number, wire::AgentExited& message) {
  const BundleId id = bundle_of(message.gang, message.bundle);
  if (agents_.at(number).processes.erase(id) == 0) return {};
  tell(id.gang, Exited{id.gang, id.bundle, message.pid, status_of(message), std::move(message.out_of_memory)});
  return {};
}

Result<void> RemoteTable::take(int number, wire::AgentReleased& message) {
  const auto gang = gangs_.find(static_cast<GangId>(message.gang));
  if (gang == gangs_.end()) return {};
  gang->second.awaited.erase(number);
  drop_released();
  return {};
}

// It exists from the start of the worker, as on the local machine, even if the worker never prints a line.
base::Fd RemoteTable::open_log(const std::filesystem::path& path) {
  return base::Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
}

// Only to logs of workers: an agent is another machine, and this file is on the driver's.
Result<void> RemoteTable::take(int, wire::AgentOutput& message) {
  const std::filesystem::path path(message.path);
  const std::string attempt = path.parent_path().filename();
  const std::string name = path.filename();
  const bool allowed = path.lexically_normal() == path && attempt.starts_with("attempt_") &&
                       name.starts_with("rank_") && name.ends_with(".log") &&
                       log_folders_.contains(path.parent_path().parent_path());
  if (!allowed) return base::error("sent output for '{}', which is not a log of its workers", message.path);
  const base::Fd file = open_log(path);
  const std::string& data = message.data.data;
  for (std::size_t done = 0; file.valid() && done < data.size();) {
    const auto count = ::write(file.get(), data.data() + done, data.size() - done);
    if (count < 0 && errno != EINTR) return {};  // the disk is full: a worker's output is lost in the same way locally
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return {};
}

void RemoteTable::agents_changed() {
  agents_changed_ = clock_.now();
  const std::lock_guard lock(shared_.mutex);
  shared_.memory.id = id_;
  shared_.memory.secret = peers_secret_;
  shared_.memory.addresses.clear();
  for (const auto& [number, agent] : agents_) {
    if (agent.ready && !agent.memory_address.empty()) shared_.memory.addresses.push_back(agent.memory_address);
  }
}

// Agents hold copies of each other's checkpoints.
void RemoteTable::tell_agents(base::MonotonicTime now) {
  if (!agents_changed_ || now - *agents_changed_ < kAgentsSettle) return;
  agents_changed_.reset();
  wire::AgentPeers message;
  for (const auto& [number, agent] : agents_) {
    if (agent.ready && !agent.memory_address.empty()) {
      message.addresses[std::to_string(number)] = agent.memory_address;
    }
  }
  for (const auto& [number, agent] : agents_) {
    if (agent.ready && !agent.memory_address.empty()) agent.channel->send(message);
  }
}

// Its processes are killed by the kernel, or end when their leases expire.
void RemoteTable::lose_agent(int number, const std::string& why) {
  auto held = agents_.extract(number);
  if (held.empty()) return;
  Agent agent = std::move(held.mapped());
  if (agent.channel) agent.channel->close();
  if (!agent.memory_address.empty()) agents_changed();
  Node& node = nodes_.at(agent.node);
  node.agent.reset();
  node.trouble = why;
  node.next_start = clock_.now() + pause_after(node.failed_starts++);
  if (!adapter_gone_) adapter_->send(Dict{{"do", "stop_agent"}, {"agent", std::to_string(number)}});
  // Otherwise the gangs on the node are notified, or the agent ended with the reservation that it was started for.
  if (!agent.ready) base::log_info("the agent on {} could not be used: {}", node.info.host, why);
  publish();
  lose_gangs_on(agent.node, why);
  const std::string told = fmt::format("node {} is lost: {}", node.info.host, why);
  for (const auto& [id, pid] : agent.processes) {
    if (pid == 0) {
      tell(id.gang, StartFailed{id.gang, id.bundle, base::Error(told), true});
    } else {
      tell(id.gang, Exited{id.gang, id.bundle, pid, {}, {}, told});
    }
  }
  for (auto& [id, gang] : gangs_) gang.awaited.erase(number);
  drop_released();
  retry_waiting();
}

void RemoteTable::tick() {
  tick_timer_.expires_after(kTick);
  tick_timer_.async_wait([this](const asio::error_code& cancelled) {
    if (cancelled) return;
    const auto now = clock_.now();
    // If this thread was delayed, the agents' messages may still be unread.
    if (const auto late = watch_.late(now); late.count() > 0) {
      for (auto& [number, agent] : agents_) agent.heard = std::min(now, agent.heard + late);
    }
    check_agents(now);
    tell_agents(now);
    if (server_ && !places_) start_missing_agents();
    const bool waiting = std::any_of(gangs_.begin(), gangs_.end(),
                                     [](const auto& item) { return item.second.state == Gang::State::kWaiting; });
    if (waiting && now - asked_nodes_ > kNodesPeriod) ask_nodes();
    retry_waiting();
    tick();
  });
}

void RemoteTable::check_agents(base::MonotonicTime now) {
  std::vector<std::pair<int, std::string>> lost;
  for (const auto& [number, agent] : agents_) {
    const double silent = base::Seconds(now - agent.heard).count();
    if (agent.channel && silent > settings_.node_timeout_s) {
      lost.emplace_back(number, fmt::format("no heartbeat from its agent for {:.1f} s", silent));
    } else if (!agent.channel && silent > settings_.agent_timeout_s) {
      lost.emplace_back(number, fmt::format("its agent did not connect to {}:{} within {:.0f} s",
                                            server_->address().host, server_->address().port, silent));
    }
  }
  for (const auto& [number, why] : lost) lose_agent(number, why);
}

}  // namespace trireme::engine
