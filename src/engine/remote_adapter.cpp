// The adapter of a remote engine: its answers and events.

#include <unistd.h>

#include <algorithm>

#include "base/dict_fields.h"
#include "base/fields.h"
#include "base/hex.h"
#include "base/log.h"
#include "engine/remote_table.h"
#include "wire/secret.h"

namespace trireme::engine {
namespace {

constexpr int kProtocolVersion = 1;

GangId gang_of(const Dict& event) {
  if (!event.contains("gang")) return 0;
  const auto* number = event["gang"].get_if<std::int64_t>();
  return number && *number > 0 ? static_cast<GangId>(*number) : 0;
}

std::optional<base::Seconds> seconds_of(const Dict& event) {
  if (!event.contains("seconds") || !event["seconds"].is_number()) return std::nullopt;
  return base::Seconds(std::max(0.0, event["seconds"].as_double()));
}

template <typename T>
Result<T> field(const Dict& dict, const char* name) {
  if (!dict.contains(name)) return base::error("'{}' is missing", name);
  return base::Codec<T>::from(dict[name]);
}

std::vector<Gpu> gpus_of(const std::vector<std::string>& ids, const std::string& type) {
  std::vector<Gpu> gpus;
  for (const auto& id : ids) gpus.push_back({.id = id, .type = type});
  return gpus;
}

}  // namespace

RemoteTable::RemoteTable(asio::io_context& io, const base::Clock& clock, const RemoteEngineOptions& options,
                         RemoteNodes& shared)
    : io_(io),
      clock_(clock),
      options_(options),
      shared_(shared),
      id_(base::to_hex(wire::random_bytes(6))),
      secret_(wire::random_bytes(wire::kSecretSize)),
      peers_secret_(wire::random_bytes(wire::kSecretSize)),
      watch_(base::Seconds(0.25), clock.now()) {}

void RemoteTable::begin(std::function<void(Result<void>)> ready) {
  ready_ = std::move(ready);
  Dict options = options_.options;
  auto settings = take_remote_options(options);
  if (!settings) return std::exchange(ready_, nullptr)(std::move(settings).error());
  settings_ = *settings;
  auto adapter = AdapterProcess::start(io_, options_.adapter,
                                       options_.state_dir / "engines" / fmt::format("{}-{}.log", ::getpid(), id_),
                                       {.event = [this](Dict event) { on_event(std::move(event)); },
                                        .gone = [this](const std::string& why) { on_adapter_gone(why); }});
  if (!adapter) return std::exchange(ready_, nullptr)(std::move(adapter).error().wrap("could not start its adapter"));
  adapter_ = *std::move(adapter);
  tick();
  ask(Dict{{"do", "start"}, {"version", kProtocolVersion}, {"options", std::move(options)}},
      [this](Result<Value> answer) { on_started(std::move(answer)); });
}

void RemoteTable::ask(Dict request, std::function<void(Result<Value>)> answer) {
  request["id"] = next_question_;
  questions_[next_question_++] = std::move(answer);
  adapter_->send(request);
}

void RemoteTable::on_event(Dict event) {
  const std::string kind = base::text_of(event, "event");
  const std::string why = base::text_of(event, "why");
  if (kind == "answer") {
    auto question =
        questions_.extract(event.contains("id") && event["id"].get_if<std::int64_t>() ? event["id"].as_int() : 0);
    if (question.empty()) return;
    const std::string failure = base::text_of(event, "failure");
    if (!failure.empty()) return question.mapped()(base::Error(failure));
    return question.mapped()(event.contains("value") ? event["value"] : Value());
  }
  const auto gang = gangs_.find(gang_of(event));
  if (kind == "reserved") {
    on_reserved(event);
  } else if (kind == "reserve_failed" && gang != gangs_.end()) {
    refuse(gang->first, gang->second, base::Error(why));
  } else if (kind == "reserve_waiting" && gang != gangs_.end()) {
    if (!std::exchange(gang->second.said_waiting, true)) tell(gang->first, ReserveWaiting{gang->first, why});
  } else if (kind == "agent_exited") {
    const std::string number = base::text_of(event, "agent");
    lose_agent(std::atoi(number.c_str()), why);
  } else if (kind == "node_lost") {
    const auto node = nodes_.find(base::text_of(event, "node"));
    if (node != nodes_.end() && node->second.agent) lose_agent(*node->second.agent, why);
  } else if (kind == "preempt") {
    on_preempt(base::text_of(event, "node"), why, seconds_of(event));
  } else if (kind == "room_grew") {
    ask_nodes();
  } else if (kind == "warning") {
    base::log_warning("engine {}: {}", options_.name, base::text_of(event, "message"));
  }
}

void RemoteTable::on_adapter_gone(const std::string& why) {
  adapter_gone_ = true;
  const std::string told = fmt::format("its adapter {}{}{}", why, why.empty() ? "" : ", and ", adapter_->epitaph());
  if (ready_) return std::exchange(ready_, nullptr)(base::Error(told));
  base::log_warning("engine {}: {}. The run keeps its nodes but gets no new ones", options_.name, told);
  for (auto& [id, question] : std::exchange(questions_, {})) question(base::Error(told));
  // What waits for an answer will never get one.
  for (auto& [id, gang] : gangs_) {
    if (gang.state == Gang::State::kAsked) refuse(id, gang, base::Error(told));
  }
}

void RemoteTable::on_started(Result<Value> answer) {
  if (!ready_) return;
  if (!answer) return std::exchange(ready_, nullptr)(std::move(answer).error());
  const auto* dict = answer->get_if<Dict>();
  auto opened = dict ? open(*dict) : base::error("its adapter's answer to 'start' is not an object");
  if (!opened) return std::exchange(ready_, nullptr)(std::move(opened).error());
  ask_nodes();
}

Result<void> RemoteTable::open(const Dict& answer) {
  TRIREME_ASSIGN(const int version, field<int>(answer, "version"), "its adapter's answer to 'start'");
  if (version != kProtocolVersion) {
    return base::error("its adapter speaks version {} of the protocol, expected {}", version, kProtocolVersion);
  }
  TRIREME_ASSIGN(places_, field<bool>(answer, "places"), "its adapter's answer to 'start'");
  const std::string host = settings_.driver_host.empty() ? base::text_of(answer, "driver_host") : settings_.driver_host;
  wire::Address where;
  where.kind = wire::Address::Kind::kTls;
  TRIREME_ASSIGN(where.host, resolve_host(host));
  where.port = settings_.first_port;
  where.last_port = settings_.last_port;
  TRIREME_ASSIGN(server_, wire::Server::listen(io_, where, secret_, *this));
  const std::lock_guard lock(shared_.mutex);
  shared_.places = places_;
  shared_.listen = where;
  return {};
}

void RemoteTable::ask_nodes() {
  if (asking_nodes_ || adapter_gone_) return;
  asking_nodes_ = true;
  asked_nodes_ = clock_.now();
  ask(Dict{{"do", "nodes"}}, [this](Result<Value> answer) { on_nodes(std::move(answer)); });
}

void RemoteTable::on_nodes(Result<Value> answer) {
  asking_nodes_ = false;
  const auto* list = answer ? answer->get_if<List>() : nullptr;
  Result<void> taken;
  if (!answer) taken = std::move(answer).error();
  if (answer && !list) taken = base::error("its adapter's answer to 'nodes' is not a list");
  std::set<std::string> before;
  for (auto& [id, node] : nodes_) {
    if (node.listed) before.insert(id);
  }
  if (taken && list) {
    order_.clear();
    for (auto& [id, node] : nodes_) node.listed = false;
    for (const auto& each : *list) {
      if (taken) taken = take_node(each);
    }
  }
  if (!taken && ready_) return std::exchange(ready_, nullptr)(std::move(taken).error().wrap("its nodes"));
  if (!taken) base::log_warning("engine {}: its nodes: {}", options_.name, taken.error().message());
  bool grew = false;
  for (const auto& id : order_) {
    if (before.contains(id)) continue;
    nodes_.at(id).leaving = false;  // it was taken away, and is there again
    grew = true;
  }
  if (!places_) start_missing_agents();
  publish();
  if (ready_) std::exchange(ready_, nullptr)({});
  retry_waiting();
  if (!grew) return;
  for (const auto& [id, gang] : gangs_) {
    if (gang.state == Gang::State::kReserved) tell(id, RoomGrew{id});
  }
}

Result<void> RemoteTable::take_node(const Value& value) {
  const auto* dict = value.get_if<Dict>();
  if (!dict) return base::error("a node is not an object");
  TRIREME_ASSIGN(const auto id, field<std::string>(*dict, "id"));
  TRIREME_ASSIGN(const auto host, field<std::string>(*dict, "host"), "node {}", id);
  Node& node = nodes_[id];
  if (!std::exchange(node.listed, true)) order_.push_back(id);
  node.info.id = id;
  node.info.host = host;
  node.info.cpus_declared = true;
  const std::string type = base::text_of(*dict, "accelerator_type");
  if (dict->contains("gpus") && !(*dict)["gpus"].is_null()) {
    TRIREME_ASSIGN(const auto ids, field<std::vector<std::string>>(*dict, "gpus"), "node {}", id);
    node.info.gpus = gpus_of(ids, type);
    node.info.total["GPU"] = static_cast<double>(ids.size());
  }
  if (!dict->contains("total") || (*dict)["total"].is_null()) return {};
  TRIREME_ASSIGN(const auto total, field<Resources>(*dict, "total"), "node {}", id);
  for (const auto& [name, amount] : total) node.info.total[name] = amount;
  const auto gpus = static_cast<std::size_t>(node.info.total.contains("GPU") ? node.info.total["GPU"] : 0);
  // Only their number is known.
  for (std::size_t i = node.info.gpus.size(); i < gpus; ++i)
    node.info.gpus.push_back({.id = std::to_string(i), .type = type});
  node.known = total.contains("CPU");
  return {};
}

void RemoteTable::on_reserved(const Dict& event) {
  const auto it = gangs_.find(gang_of(event));
  if (it == gangs_.end() || it->second.state != Gang::State::kAsked) return;
  auto& [id, gang] = *it;
  const auto* list = event.contains("slots") ? event["slots"].get_if<List>() : nullptr;
  if (!list || list->size() != gang.request.bundles.size()) {
    return refuse(id, gang, base::error("the adapter did not reserve {} slots", gang.request.bundles.size()));
  }
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const auto* dict = (*list)[i].get_if<Dict>();
    if (!dict) return refuse(id, gang, base::error("slot {} is not an object", i));
    Slot slot{.node_id = base::text_of(*dict, "node"),
              .host = base::text_of(*dict, "host"),
              .resources = gang.request.bundles[i],
              .gpus = {}};
    auto gpus = field<std::vector<std::string>>(*dict, "gpus");
    if (gpus) slot.gpus = *std::move(gpus);
    if (slot.node_id.empty()) return refuse(id, gang, base::error("slot {} has no node", i));
    Node& node = nodes_[slot.node_id];
    if (node.info.id.empty()) {
      node.info.id = slot.node_id;
      node.info.host = slot.host;
    }
    slots.push_back(std::move(slot));
  }
  // The bundles of one node are adjacent.
  std::map<std::string, std::size_t> first;
  for (const auto& slot : slots) first.emplace(slot.node_id, first.size());
  std::stable_sort(slots.begin(), slots.end(),
                   [&](const Slot& a, const Slot& b) { return first[a.node_id] < first[b.node_id]; });
  gang.slots = std::move(slots);
  join_agents(id, gang);
}

void RemoteTable::on_preempt(const std::string& node, const std::string& why, std::optional<base::Seconds> seconds) {
  const auto known = nodes_.find(node);
  if (known == nodes_.end()) return;
  known->second.leaving = true;
  publish();
  ask_nodes();
  std::vector<GangId> there;
  for (const auto& [id, gang] : gangs_) {
    const bool on_it =
        std::any_of(gang.slots.begin(), gang.slots.end(), [&](const Slot& s) { return s.node_id == node; });
    if (gang.state == Gang::State::kReserved && on_it) there.push_back(id);
  }
  const bool elsewhere = places_ || !usable_nodes().empty();
  for (const GangId id : there) tell(id, Reclaim{id, why, seconds, node, elsewhere});
}

void RemoteTable::shut_down() {
  tick_timer_.cancel();
  for (auto& [id, gang] : gangs_) gang.handler = nullptr;
  for (auto& [number, agent] : agents_) {
    if (agent.channel) agent.channel->close();
  }
  if (server_) server_->close();
  if (adapter_) adapter_->end(base::Seconds(15.0));
  for (auto& [id, gang] : gangs_) {
    if (gang.leaving) gang.leaving->set_value();
  }
  gangs_.clear();
}

}  // namespace trireme::engine
