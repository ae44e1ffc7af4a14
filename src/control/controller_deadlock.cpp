// Detects ranks that wait for each other forever through the run's own store and barriers.

#include <algorithm>

#include "control/controller.h"

namespace trireme::control {
namespace {

// A shorter timeout may be intended: a caller that waits some seconds for a key can handle its absence.
constexpr double kForGood = 30.0;

}  // namespace

// Empty unless every rank that has not returned waits, at least one of them for a key.
std::map<int, RankWait> Controller::waits_for_good() const {
  if (state_.phase != Phase::kRunning) return {};
  std::map<int, RankWait> waits;
  bool keys = false;
  for (auto& [asker, missing] : store_.waits()) {
    if (asker.timeout_s < kForGood) continue;
    auto& known = waits[asker.owner].keys;
    known.insert(known.end(), missing.begin(), missing.end());
    keys = true;
  }
  if (!keys) return {};
  for (int rank = 0; rank < static_cast<int>(state_.workers.size()); ++rank) {
    const Worker& worker = state_.workers[static_cast<std::size_t>(rank)];
    if (worker.phase == WorkerPhase::kDone) {
      waits.erase(rank);
      continue;
    }
    if (worker.phase != WorkerPhase::kRunning) return {};
    const auto collectives = collectives_.waiting(rank);
    if (collectives > 0) waits[rank].collectives = collectives;
    if (!waits.contains(rank)) return {};
  }
  return waits;
}

// The store shows which ranks wait. Only they know whether one of their threads could still set a key.
void Controller::look_for_deadlock() {
  const auto waits = waits_for_good();
  if (waits.empty()) {
    wait_round_.reset();
    return;
  }
  if (wait_round_) return;  // answers are pending
  WaitRound& round = wait_round_.emplace(WaitRound{});
  round.id = ++wait_rounds_;
  round.changes = store_.changes();
  wire::WaitRequest request;
  request.id = round.id;
  for (const auto& [rank, wait] : waits) {
    round.missing.insert(rank);
    send(rank, request);
  }
}

// Everything that a worker has sent before this message has been handled: nothing is in flight.
void Controller::take(wire::Channel& channel, wire::Waits& message) {
  const int rank = channel.peer().rank;
  if (!wait_round_ || wait_round_->id != message.id || wait_round_->missing.erase(rank) == 0) return;
  WaitRound& round = *wait_round_;
  round.refuted = round.refuted || !message.busy.empty();
  round.requests[rank] = std::move(message.requests);
  if (!round.missing.empty()) return;
  const WaitRound done = *std::exchange(wait_round_, std::nullopt);
  auto waits = waits_for_good();
  if (done.refuted || waits.empty() || store_.changes() != done.changes || waits.size() != done.requests.size()) return;
  // Each request that a thread waits for must be unanswered here: the answer to any other may be in flight. A wait that
  // its thread has given up does not count.
  std::map<int, std::int64_t> known;
  for (auto& [rank_of, wait] : waits) wait.keys.clear();
  for (auto& [asker, missing] : store_.waits()) {
    const auto told = done.requests.find(asker.owner);
    if (told == done.requests.end() || asker.timeout_s < kForGood) continue;
    if (std::find(told->second.begin(), told->second.end(), asker.request) == told->second.end()) continue;
    ++known[asker.owner];
    auto& keys = waits[asker.owner].keys;
    keys.insert(keys.end(), missing.begin(), missing.end());
  }
  for (const auto& [waiting, requests] : done.requests) {
    const auto unanswered = known[waiting] + waits[waiting].collectives;
    if (unanswered == 0 || unanswered != static_cast<std::int64_t>(requests.size())) return;
  }
  handle(DeadlockFound{std::move(waits)});
}

}  // namespace trireme::control
