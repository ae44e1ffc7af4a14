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

// What a test sees of a worker "process".
struct RankProcess {
  int rank;
  std::string ticket;
  std::stop_token killed;
};

// An engine whose processes are threads of this one: ranks meet on real sockets, and a sanitizer sees both sides.
class ThreadEngine final : public engine::Engine {
 public:
  // Returns how the "process" ended. A kill is told to the controller at once; the thread ends when it can.
  using Body = std::function<engine::ExitStatus(const RankProcess&)>;

  explicit ThreadEngine(Body body) : body_(std::move(body)) {}

  // Rank r runs on node r / per_node.
  void set_ranks_per_node(int per_node) { per_node_ = per_node; }
  void refuse_start_of(int rank) { refused_ = rank; }

  base::Result<void> check(const engine::GangRequest&) const override { return {}; }
  std::vector<engine::NodeInfo> nodes() const override { return {}; }

  engine::GangId reserve(engine::GangRequest request, engine::EventHandler handler) override {
    const std::lock_guard lock(mutex_);
    handler_ = std::move(handler);
    std::vector<engine::Slot> slots;
    for (std::size_t i = 0; i < request.bundles.size(); ++i) {
      const int node = static_cast<int>(i) / per_node_;
      slots.push_back({"node" + std::to_string(node), "host" + std::to_string(node), request.bundles[i], {}});
    }
    handler_(engine::Reserved{kGang, std::move(slots)});
    return kGang;
  }

  void release(engine::GangId) override {
    const std::lock_guard lock(mutex_);
    for (auto& [bundle, process] : running_) process.request_stop();
    running_.clear();
    handler_ = nullptr;
  }

  void start(engine::GangId, int bundle, engine::ProcessSpec spec) override {
    const std::lock_guard lock(mutex_);
    if (bundle == refused_) {
      handler_(engine::StartFailed{kGang, bundle, base::error("refused by the test")});
      return;
    }
    const int id = ++starts_;
    running_[bundle] = std::stop_source();
    RankProcess process{bundle, std::move(spec.ticket), running_[bundle].get_token()};
    handler_(engine::Started{kGang, bundle, id, true});
    threads_.emplace_back([this, process = std::move(process)] {
      const auto status = body_(process);
      ended(process, status);
    });
  }

  void kill(engine::GangId, int bundle, base::Seconds grace) override {
    const std::lock_guard lock(mutex_);
    auto process = running_.extract(bundle);
    if (process.empty()) return;
    process.mapped().request_stop();
    handler_(engine::Exited{kGang, bundle, 0, {engine::ExitStatus::Kind::kSignal, grace.count() > 0 ? 15 : 9}});
  }

 private:
  static constexpr engine::GangId kGang = 1;

  void ended(const RankProcess& process, engine::ExitStatus status) {
    const std::lock_guard lock(mutex_);
    // A later process of the same rank, or the kill, has been told already.
    if (process.killed.stop_requested()) return;
    running_.erase(process.rank);
    if (handler_) handler_(engine::Exited{kGang, process.rank, 0, status});
  }

  const Body body_;
  int per_node_ = 1000;
  int refused_ = -1;
  std::mutex mutex_;
  engine::EventHandler handler_;
  std::map<int, std::stop_source> running_;
  int starts_ = 0;
  std::vector<std::jthread> threads_;  // last: joined first
};

}  // namespace trireme::control::testing
