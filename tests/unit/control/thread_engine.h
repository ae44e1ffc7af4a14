#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace trireme::control::testing {

// A test's view of a worker "process".
struct RankProcess {
  int rank;
  std::string ticket;
  std::stop_token killed;
};

// An engine whose processes are threads of this one: ranks use real sockets, and a sanitizer sees both sides.
class ThreadEngine final : public engine::Engine {
 public:
  // Returns how the "process" ended. A kill is reported to the controller at once; the thread ends when it can.
  using Body = std::function<engine::ExitStatus(const RankProcess&)>;

  explicit ThreadEngine(Body body) : body_(std::move(body)) {}

  // Rank r runs on node r / per_node.
  void set_ranks_per_node(int per_node) { per_node_ = per_node; }
  void refuse_start_of(int rank) { refused_ = rank; }

  base::Result<void> check(const engine::GangRequest&) const override { return {}; }
  std::vector<engine::NodeInfo> nodes() const override { return {}; }

  engine::GangId reserve(engine::GangRequest request, engine::EventHandler handler) override {
    const std::lock_guard lock(mutex_);
    const engine::GangId gang = next_gang_++;
    handlers_[gang] = std::move(handler);
    if (request.optional && optional_room_ <= 0) {
      handlers_[gang](engine::ReserveFailed{gang, base::error("no room")});
      return gang;
    }
    optional_room_ -= request.optional ? 1 : 0;
    std::vector<engine::Slot> slots;
    for (std::size_t i = 0; i < request.bundles.size(); ++i) {
      const int node = static_cast<int>(i) / per_node_;
      slots.push_back({"node" + std::to_string(node), "host" + std::to_string(node), request.bundles[i], {}});
    }
    handlers_[gang](engine::Reserved{gang, std::move(slots)});
    return gang;
  }

  void release(engine::GangId gang) override {
    const std::lock_guard lock(mutex_);
    for (auto it = running_.lower_bound({gang, 0}); it != running_.end() && it->first.first == gang;) {
      it->second.request_stop();
      it = running_.erase(it);
    }
    handlers_.erase(gang);
  }

  void start(engine::GangId gang, int bundle, engine::ProcessSpec spec) override {
    const std::lock_guard lock(mutex_);
    if (bundle == refused_) {
      handlers_[gang](engine::StartFailed{gang, bundle, base::error("refused by the test")});
      return;
    }
    const int id = ++starts_;
    auto& stop = running_[{gang, bundle}] = std::stop_source();
    RankProcess process{bundle, std::move(spec.ticket), stop.get_token()};
    handlers_[gang](engine::Started{gang, bundle, id, true});
    threads_.emplace_back([this, gang, process = std::move(process)] {
      const auto status = body_(process);
      ended(gang, process, status);
    });
  }

  void kill(engine::GangId gang, int bundle, base::Seconds grace) override {
    const std::lock_guard lock(mutex_);
    auto process = running_.extract({gang, bundle});
    if (process.empty()) return;
    process.mapped().request_stop();
    handlers_[gang](engine::Exited{gang, bundle, 0, {engine::ExitStatus::Kind::kSignal, grace.count() > 0 ? 15 : 9}});
  }

  // Grants this number of optional gangs from now on, and notifies the gangs.
  void set_optional_room(int room) {
    const std::lock_guard lock(mutex_);
    optional_room_ = room;
    for (auto& [gang, handler] : handlers_) handler(engine::RoomGrew{gang});
  }
  // Reclaims the newest gang.
  void reclaim_newest() {
    const std::lock_guard lock(mutex_);
    auto& [gang, handler] = *handlers_.rbegin();
    handler(engine::Reclaim{gang, "the test wants it"});
  }
  int starts() {
    const std::lock_guard lock(mutex_);
    return starts_;
  }

 private:
  using Place = std::pair<engine::GangId, int>;

  void ended(engine::GangId gang, const RankProcess& process, engine::ExitStatus status) {
    const std::lock_guard lock(mutex_);
    // A later process of the same rank, or the kill, has already been reported.
    if (process.killed.stop_requested()) return;
    running_.erase({gang, process.rank});
    if (handlers_.contains(gang)) handlers_[gang](engine::Exited{gang, process.rank, 0, status});
  }

  const Body body_;
  int per_node_ = 1000;
  int refused_ = -1;
  std::mutex mutex_;
  engine::GangId next_gang_ = 1;
  int optional_room_ = 0;
  std::map<engine::GangId, engine::EventHandler> handlers_;
  std::map<Place, std::stop_source> running_;
  int starts_ = 0;
  std::vector<std::jthread> threads_;  // last: joined first
};

}  // namespace trireme::control::testing
