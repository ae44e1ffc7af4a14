// The number of workers: room that the engine grants and reclaims, resizes, and preemptions.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "control/decider.h"

namespace trireme::control {

// The number of seats of the next attempt.
int Decider::seats() const {
  int count = 0;
  for (const auto& [id, gang] : state_.gangs) count += gang.reserved && !gang.leaving && !gang.lost ? gang.size : 0;
  return count;
}

bool Decider::reserving() const {
  return std::any_of(state_.gangs.begin(), state_.gangs.end(), [](const auto& each) { return !each.second.reserved; });
}

bool Decider::giving_back() const {
  return std::any_of(state_.gangs.begin(), state_.gangs.end(),
                     [](const auto& each) { return each.second.leaving || each.second.lost; });
}

void Decider::on(GangReserved event) {
  auto it = state_.gangs.find(event.gang);
  if (it == state_.gangs.end()) return;
  it->second.reserved = true;
  it->second.slots = std::move(event.slots);
  if (state_.phase == Phase::kReserving) return start_when_reserved();
  grow();
  if (!reserving()) want_resize("there is room for more workers");
}

void Decider::on(const ReservationFailed& event) {
  auto it = state_.gangs.find(event.gang);
  if (it == state_.gangs.end()) return;
  if (it->second.optional) {
    act(ReleaseGang{event.gang});
    state_.gangs.erase(it);
    if (state_.phase == Phase::kReserving) return start_when_reserved();
    if (!reserving() && seats() > size()) want_resize("there is room for more workers");
    return;
  }
  if (state_.phase != Phase::kReserving) return;
  state_.outcome = Outcome::kFailed;
  state_.error = event.message;
  finish();
}

void Decider::start_when_reserved() {
  if (!reserving()) start_attempt();
}

void Decider::on(RoomGrew) { grow(); }

// Requests one more seat. The answer triggers the next request, until there is no room or the maximum is reached. A run
// without checkpoints could not use a seat and would only block it for others.
void Decider::grow() {
  if (state_.phase != Phase::kRunning || reserving() || seats() >= rules_.most() || state_.kept.empty()) return;
  if (giving_back()) return;  // the engine has just reclaimed room
  state_.gangs[state_.next_gang] = {1, true};
  act(ReserveGang{state_.next_gang++, 1, true});
}

void Decider::on(const GangReclaimed& event) {
  auto it = state_.gangs.find(event.gang);
  if (it == state_.gangs.end() || it->second.leaving) return;
  if (!it->second.optional) {
    // The run needs this gang: its workers are lost and must be replaced.
    PreemptionAnnounced announced{{}, event.seconds, event.why, event.elsewhere};
    for (int rank = 0; rank < size(); ++rank) {
      const bool there = event.node_id.empty() || at(rank).slot.node_id == event.node_id;
      if (at(rank).seat.gang == event.gang && there) announced.ranks.push_back(rank);
    }
    it->second.lost = !event.node_id.empty();
    if (!announced.ranks.empty()) on(announced);
    return;
  }
  it->second.leaving = true;
  want_resize(event.why);
  if (event.seconds && state_.phase == Phase::kRunning) act(ArmTimer{Timer::kPreempt, *event.seconds});
}

// The minimum is one gang. Optional seats of an elastic run are separate gangs of one seat each.
void Decider::request_room() {
  const int least = rules_.least();
  for (int seats = least; seats <= rules_.num_workers; ++seats) {
    const bool optional = seats > least;
    const Gang& gang = state_.gangs[state_.next_gang] = {optional ? 1 : least, optional};
    act(ReserveGang{state_.next_gang++, gang.size, gang.optional});
  }
}

void Decider::on(const GangLost& event) {
  auto it = state_.gangs.find(event.gang);
  if (it == state_.gangs.end() || it->second.lost) return;
  it->second.lost = true;
  // All gangs with room on the node are told.
  if (std::exchange(state_.node_lost, event.why) != event.why) record("node_lost", {{"message", event.why}});
  if (state_.phase == Phase::kReserving) replace_lost_gangs();
}

// Before the next attempt. Returns whether it has to wait for room.
bool Decider::replace_lost_gangs() {
  bool needed = false;
  int others = 0;  // seats of optional gangs that are left
  for (auto& [id, gang] : state_.gangs) {
    if (gang.lost) {
      needed = needed || !gang.optional;
      gang.leaving = true;
    } else if (gang.optional && gang.reserved && !gang.leaving) {
      others += gang.size;
    }
  }
  if (!needed) return false;
  if (others >= rules_.least()) {
    for (auto& [id, gang] : state_.gangs) {
      if (!gang.leaving && gang.reserved) gang.optional = false;
    }
    return false;
  }
  // Everything is released first: the new gang may need the room of optional seats and of what is left of the lost one.
  for (const auto& [id, gang] : state_.gangs) act(ReleaseGang{id});
  state_.gangs.clear();
  for (auto& worker : state_.workers) {
    worker.phase = WorkerPhase::kFailed;
    worker.process = worker.channel = false;
  }
  state_.doomed.clear();
  state_.phase = Phase::kReserving;
  request_room();
  return true;
}

// A resize waits for a checkpoint, so that no work is lost. Without checkpoints it never happens, and the run continues
// unchanged.
void Decider::want_resize(const std::string& why) {
  if (state_.phase != Phase::kRunning || state_.leave_at || seats() == size()) return;
  state_.leave_at = state_.commits.next_report();
  record("resize_wanted", {{"from", size()}, {"to", seats()}, {"why", why}});
  for (int rank = 0; rank < size(); ++rank) act(SendLeaveAt{rank, *state_.leave_at});
}

void Decider::resize_at_checkpoint(std::int64_t index) {
  if (state_.phase != Phase::kRunning || !state_.leave_at || index < *state_.leave_at) return;
  resize("at a checkpoint");
}

void Decider::resize(const std::string& why) {
  record("resizing", {{"from", size()}, {"to", seats()}, {"why", why}});
  state_.failures_in_row = 0;
  cancel_or_kill();
  enter_stopping(Next::kRestart);
}

void Decider::release_leaving() {
  for (auto it = state_.gangs.begin(); it != state_.gangs.end();) {
    if (!it->second.leaving) {
      ++it;
      continue;
    }
    act(ReleaseGang{it->first});
    it = state_.gangs.erase(it);
  }
}

bool Decider::preempted(int rank) const { return state_.preemption && state_.preemption->ranks.contains(rank); }

bool Decider::everyone_preempted() const {
  return state_.preemption && static_cast<int>(state_.preemption->ranks.size()) == size();
}

void Decider::on(const PreemptionAnnounced& event) {
  if (state_.phase == Phase::kRunning) {
    const double seconds = event.seconds.value_or(rules_.preemption_grace_s);
    // A scheduler signals workers and agents, and the engine knows the deadline of its signal a moment later.
    const bool corrects = state_.preemption && state_.preemption->estimated && event.seconds;
    std::vector<int> ranks = event.ranks;
    for (int rank = 0; event.ranks.empty() && rank < size(); ++rank) ranks.push_back(rank);
    std::erase_if(ranks, [&](int rank) { return rank < 0 || rank >= size() || (preempted(rank) && !corrects); });
    const bool driver_ends = event.ranks.empty();
    if (driver_ends && state_.preemption) state_.preemption->driver_ends = true;
    if (event.elsewhere && state_.preemption) state_.preemption->elsewhere = *event.elsewhere;
    if (ranks.empty()) return;
    const bool first = !state_.preemption;
    if (first) state_.preemption = Preemption{{}, event.why, state_.commits.next_report(), false, driver_ends};
    state_.preemption->ranks.insert(ranks.begin(), ranks.end());
    if (event.elsewhere) state_.preemption->elsewhere = *event.elsewhere;
    record("preemption_announced",
           {{"ranks", List(ranks.begin(), ranks.end())}, {"seconds", seconds}, {"why", event.why}});
    act(SendPreemption{{state_.preemption->ranks.begin(), state_.preemption->ranks.end()}, seconds, event.why});
    // Preemptions announced later have their own deadlines, but the first loss ends the attempt anyway.
    if (first || corrects) {
      state_.preemption->estimated = !event.seconds;
      act(ArmTimer{Timer::kPreempt, seconds});
    }
    return;
  }
  // Nothing is running that could be saved.
  if (event.ranks.empty()) on(StopRequested{event.why, false});
}

// All progress up to the announcement is in a checkpoint: there is no reason to wait for the deadline.
void Decider::saved_before_preemption(std::int64_t index) {
  if (state_.phase != Phase::kRunning || !state_.preemption || index < state_.preemption->last_report) return;
  preemption_due(true);
}

void Decider::preemption_due(bool saved) {
  if (state_.phase != Phase::kRunning) return;
  if (!state_.preemption) {
    // Only room is reclaimed; the timer may be from an attempt that has already released it.
    if (giving_back()) resize("the engine's deadline has passed");
    return;
  }
  if (everyone_preempted() && (!state_.preemption->elsewhere || state_.preemption->driver_ends)) {
    return on(StopRequested{state_.preemption->why, false});
  }
  const auto doomed = state_.preemption->ranks;
  for (int rank : doomed) {
    if (at(rank).phase != WorkerPhase::kRunning) continue;
    at(rank).phase = WorkerPhase::kFailed;
    fail(failure_of(rank, "preemption", saved ? "Preempted" : "PreemptionTimeout",
                    fmt::format("announced ({}), {}", state_.preemption->why,
                                saved ? "with all progress in a checkpoint" : "without a last checkpoint in time")));
  }
  // Ranks that had already finished do not fail the attempt.
  if (state_.failures.empty()) state_.preemption.reset();
}

}  // namespace trireme::control
