#include "control/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "control/decider.h"
#include "control/ranks.h"

namespace trireme::control {

Worker& Decider::at(int rank) {
  TRIREME_CHECK(rank >= 0 && rank < size(), "no rank {}", rank);
  return state_.workers[static_cast<std::size_t>(rank)];
}

bool Decider::running() const {
  return state_.phase == Phase::kRunning || state_.phase == Phase::kFailing || state_.phase == Phase::kDraining;
}

bool Decider::before_the_end() const {
  return state_.phase == Phase::kReserving || state_.phase == Phase::kStarting || state_.phase == Phase::kRunning ||
         state_.phase == Phase::kFailing;
}

void Decider::record(const char* event, Dict fields) {
  fields["attempt"] = state_.attempt;
  act(Record{event, std::move(fields)});
}

void Decider::on(Begin) {
  if (state_.phase != Phase::kIdle) return;
  state_.phase = Phase::kReserving;
  state_.furthest = state_.began_at = state_.commits.resume_at();
  // Validations that an earlier start of the run did not finish.
  for (const auto& kept : state_.kept) {
    if (kept.pending()) request_validation(kept);
  }
  request_room();
}

void Decider::on(const ProcessStarted& event) {
  Worker& worker = at(event.rank);
  worker.pid = event.pid;
  worker.host = worker.slot.host;
  if (worker.phase == WorkerPhase::kAbsent) worker.phase = WorkerPhase::kStarted;
  record("worker_started", {{"rank", event.rank}, {"pid", event.pid}, {"host", worker.host}, {"forked", event.forked}});
}

void Decider::on(const ProcessStartFailed& event) {
  at(event.rank).process = false;
  state_.doomed.erase(event.rank);
  // It was stopped before it started, which does not predict the next start.
  if (!before_the_end()) return end_when_gone();
  if (Gang& gang = state_.gangs.at(at(event.rank).seat.gang); gang.optional) {
    gang.leaving = true;  // the run can continue without it
  } else if (event.node_lost) {
    gang.lost = true;
  } else {
    // The same program fails the same way on the same machine: retrying is useless.
    state_.starts_used = std::max<std::int64_t>(rules_.start_limit, 0);
  }
  fail_to_start(event.rank, fmt::format("rank {} could not be started: {}", event.rank, event.message));
  end_when_gone();
}

void Decider::on(ProcessExited event) {
  Worker& worker = at(event.rank);
  worker.process = false;
  state_.doomed.erase(event.rank);
  worker.exit = event.status;
  worker.out_of_memory = std::move(event.out_of_memory);
  worker.full_log = std::move(event.full_log);
  worker.watchdog = std::move(event.watchdog);
  worker.node_lost = std::move(event.node_lost);
  judge_departure(event.rank);
  kill_doomed(true);
  end_when_gone();
}

void Decider::on(Connected event) {
  Worker& worker = at(event.rank);
  worker.channel = true;
  worker.pid = event.pid;
  worker.host = std::move(event.host);
  if (state_.phase != Phase::kStarting) return;
  worker.phase = WorkerPhase::kConnected;
  record("worker_connected", {{"rank", event.rank}, {"pid", worker.pid}, {"host", worker.host}});
  begin_when_complete();
}

void Decider::on(const ConnectionLost& event) {
  Worker& worker = at(event.rank);
  worker.channel = false;
  worker.lost = event.why;
  // Without a connection it cannot take part in the next attempt either.
  const bool awaited = worker.phase == WorkerPhase::kCancelled || worker.phase == WorkerPhase::kReady;
  if (awaited) {
    worker.phase = WorkerPhase::kFailed;
    if (worker.process) act(KillProcess{event.rank, 0.0});
  }
  judge_departure(event.rank);
  kill_doomed(true);
  end_when_gone();
}

void Decider::on(const FunctionEntered& event) {
  if (!running()) return;
  at(event.rank).holds = event.holds;
  record("function_entered", {{"rank", event.rank}});
}

void Decider::on(FunctionReturned event) {
  Worker& worker = at(event.rank);
  if (!running() || worker.phase == WorkerPhase::kDone) return;
  worker.phase = WorkerPhase::kDone;
  if (event.rank == 0) state_.return_value = std::move(event.value);
  record("worker_finished", {{"rank", event.rank}});
  state_.commits.finished(event.rank);
  commit_what_is_ready();
  finish_when_done();
  stop_when_drained();
}

void Decider::on(const CollectivesAborted& event) {
  Worker& worker = at(event.rank);
  if (worker.phase != WorkerPhase::kCancelled) return;
  worker.aborted = true;
  kill_doomed(true);
}

void Decider::on(const BecameReady& event) {
  Worker& worker = at(event.rank);
  if (worker.phase != WorkerPhase::kCancelled) return;
  worker.phase = WorkerPhase::kReady;
  kill_doomed(true);
  end_when_gone();
}

void Decider::on(const StopRequested& event) {
  if (state_.phase == Phase::kFinished) return;
  if (state_.phase == Phase::kValidating) {
    // The result of the training is known. Pending validations stay in the manifests: the next start requests them
    // again.
    record("stop_requested", {{"why", event.why}, {"hard", event.hard}});
    if (!state_.collecting.empty()) {
      if (!event.hard) return;  // the only copies end with the agents
      give_up_collecting();
      for (const auto& [id, gang] : state_.gangs) act(ReleaseGang{id});
    }
    return finish();
  }
  if (event.hard) give_up_collecting();
  const double grace = event.hard ? 0.0 : rules_.stop_grace_s;
  if (state_.stop_why.empty() && state_.outcome == Outcome::kNone) {
    state_.stop_why = event.why;
    state_.outcome = Outcome::kStopped;
    state_.error = fmt::format("stopped: {}", event.why);
    record("stop_requested", {{"why", event.why}, {"hard", event.hard}});
  } else if (!event.hard) {
    return;
  }
  if (state_.phase == Phase::kIdle || state_.phase == Phase::kReserving) {
    for (const auto& [id, gang] : state_.gangs) act(ReleaseGang{id});
    return finish();
  }
  if (state_.phase == Phase::kRunning && !event.hard) return drain();
  kill_all(grace);
  enter_stopping(Next::kFinish);
}

void Decider::on(const TimerFired& event) {
  switch (event.timer) {
    case Timer::kStart: return start_timed_out();
    case Timer::kCause: return settle_causes();
    case Timer::kAbort: return kill_doomed(false);
    case Timer::kSilence: return give_up_on_silent_ranks();
    case Timer::kStop:
      // Workers that are ready stay, and are not waited for.
      if (state_.phase == Phase::kStopping) state_.doomed.clear();
      for (int rank = 0; state_.phase == Phase::kStopping && rank < size(); ++rank) {
        const bool stays = state_.next == Next::kRestart && at(rank).phase == WorkerPhase::kReady;
        if (at(rank).process && !stays) act(KillProcess{rank, 0.0});
      }
      return;
    case Timer::kPause:
      if (state_.phase != Phase::kPausing) return;
      state_.phase = Phase::kStopping;  // a worker that was ready may have failed in the meantime
      state_.paused = true;
      return end_when_gone();
    case Timer::kResize:
      if (state_.phase == Phase::kRunning) act(ArmTimer{Timer::kResize, rules_.resize_interval_s});
      return grow();
    case Timer::kPreempt: return preemption_due();
  }
}

void Decider::start_attempt() {
  if (!state_.workers.empty()) ++state_.attempt;
  state_.phase = Phase::kStarting;
  state_.failures.clear();
  state_.next = Next::kNone;
  state_.leave_at.reset();
  state_.preemption.reset();
  state_.stacks.reset();
  state_.node_lost.clear();
  state_.began_at = state_.furthest;
  seat_workers();
  state_.commits = state_.commits.next_attempt(size());
  state_.positions = {};
  for (int rank = 0; rank < size(); ++rank) {
    Worker& worker = at(rank);
    if (worker.phase == WorkerPhase::kConnected) {
      record("worker_kept", {{"rank", rank}, {"pid", worker.pid}, {"host", worker.host}});
      continue;
    }
    // Set now, not when the engine answers: a stop in between must wait for it.
    worker.process = true;
    act(StartProcess{rank});
  }
  state_.settled = false;
  act(SettleStorage{});  // while processes start
  act(ArmTimer{Timer::kStart, rules_.start_timeout_s});
  begin_when_complete();
}

// The workers of the next attempt, by rank: all seats that remain, those of one node together.
std::vector<Worker> Decider::next_workers() const {
  std::vector<Worker> seated;
  for (const auto& [id, gang] : state_.gangs) {
    for (int bundle = 0; gang.reserved && !gang.leaving && !gang.lost && bundle < gang.size; ++bundle) {
      Worker worker;
      worker.seat = {id, bundle};
      worker.slot = gang.slots[static_cast<std::size_t>(bundle)];
      seated.push_back(std::move(worker));
    }
  }
  std::map<std::string, int> nodes;  // in order of appearance
  for (const auto& worker : seated) nodes.emplace(worker.slot.node_id, static_cast<int>(nodes.size()));
  std::stable_sort(seated.begin(), seated.end(),
                   [&](const Worker& a, const Worker& b) { return nodes[a.slot.node_id] < nodes[b.slot.node_id]; });
  std::vector<engine::Slot> slots;
  for (const auto& worker : seated) slots.push_back(worker.slot);
  auto visible = visible_gpus_of(slots, rules_.share_cuda_visible_devices);
  for (std::size_t rank = 0; rank < seated.size(); ++rank) seated[rank].visible_gpus = std::move(visible[rank]);
  return seated;
}

// The ranks whose process sees other GPUs than the next attempt assigns to its seat. CUDA reads the list once, so such
// a process would use a GPU that it does not hold any more, or not find its own.
std::set<int> Decider::ranks_with_other_gpus() const {
  std::map<Seat, std::vector<std::string>> next;
  for (auto& worker : next_workers()) next[worker.seat] = std::move(worker.visible_gpus);
  std::set<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    const Worker& worker = state_.workers[static_cast<std::size_t>(rank)];
    const auto seat = next.find(worker.seat);
    if (seat != next.end() && seat->second != worker.visible_gpus) ranks.insert(rank);
  }
  return ranks;
}

// Assigns ranks to all remaining seats. A worker that is ready keeps its process.
void Decider::seat_workers() {
  release_leaving();
  std::vector<Worker> seated = next_workers();
  std::vector<int> taken_over(seated.size(), -1);
  std::map<Seat, int> ready;
  for (int rank = 0; rank < size(); ++rank) {
    if (at(rank).phase == WorkerPhase::kReady && at(rank).process) ready[at(rank).seat] = rank;
  }
  std::int64_t kept = 0;
  for (std::size_t rank = 0; rank < seated.size(); ++rank) {
    const auto before = ready.find(seated[rank].seat);
    if (before == ready.end()) continue;
    const Worker& old = at(before->second);
    seated[rank].phase = WorkerPhase::kConnected;
    seated[rank].pid = old.pid;
    seated[rank].host = old.host;
    seated[rank].holds = old.holds;
    seated[rank].process = seated[rank].channel = true;
    taken_over[rank] = before->second;
    ++kept;
  }
  state_.workers = std::move(seated);
  state_.doomed.clear();
  record("attempt_started", {{"num_workers", size()}, {"kept", kept}});
  act(ResetAttempt{std::move(taken_over)});
}

void Decider::on(StorageSettled event) {
  if (event.attempt != state_.attempt) return;  // of an attempt that did not start
  if (event.failure) record("warning", {{"message", *event.failure}});
  if (event.earlier) {
    record("warning", {{"message", event.earlier->why}});
    const auto first = event.earlier->first_report;
    std::vector<std::string> lost;
    for (const auto& kept : state_.kept) {
      if (kept.index >= first) lost.push_back(kept.name);
    }
    for (const auto& name : lost) forget_lost(name);
    state_.collecting.erase(state_.collecting.lower_bound(first), state_.collecting.end());
    state_.commits = state_.commits.resumed_earlier(first, std::move(event.earlier->positions));
  }
  state_.settled = true;
  if (state_.phase == Phase::kStarting) begin_when_complete();
}

void Decider::begin_when_complete() {
  const bool all = all_workers([](const Worker& each) { return each.phase == WorkerPhase::kConnected; });
  if (!all || !state_.settled) return;
  state_.phase = Phase::kRunning;
  act(DisarmTimer{Timer::kStart});
  for (int rank = 0; rank < size(); ++rank) {
    at(rank).phase = WorkerPhase::kRunning;
    act(SendStart{rank});
  }
  record("training_started", {{"num_workers", size()}});
  if (!rules_.elastic()) return;
  act(ArmTimer{Timer::kResize, rules_.resize_interval_s});
  // The capacity changed while the gang was starting.
  if (seats() != size()) want_resize("the number of seats changed while workers were starting");
}

void Decider::finish_when_done() {
  // A checkpoint that could not be stored is a failure even if the function ignored the error: the decision is pending.
  if (!before_the_end() || !state_.failures.empty() || state_.workers.empty()) return;
  const bool all = all_workers([](const Worker& each) { return each.phase == WorkerPhase::kDone; });
  if (!all || state_.commits_in_flight > 0) return;
  if (everyone_preempted()) {
    // They returned because of the preemption. The next start of the run finds out whether there is more work.
    state_.outcome = Outcome::kStopped;
    state_.stop_why = state_.preemption->why;
    state_.error = fmt::format("preempted: {}", state_.preemption->why);
  } else {
    state_.outcome = Outcome::kFinished;
  }
  for (int rank = 0; rank < size(); ++rank) act(SendGoodbye{rank});
  enter_stopping(Next::kFinish);
}

void Decider::drain() {
  state_.phase = Phase::kDraining;
  for (int rank = 0; rank < size(); ++rank) {
    if (at(rank).channel) act(SendStop{rank});
  }
  stop_when_drained();
}

// All uploads in flight are stored: now the workers may exit.
void Decider::stop_when_drained() {
  if (state_.phase != Phase::kDraining || state_.commits_in_flight > 0) return;
  const bool all = all_workers([](const Worker& each) {
    return each.drained || !each.channel || each.phase == WorkerPhase::kDone || each.phase == WorkerPhase::kFailed;
  });
  if (!all) return;
  kill_all(rules_.stop_grace_s);
  enter_stopping(Next::kFinish);
}

void Decider::kill_all(double grace) {
  state_.doomed.clear();
  for (int rank = 0; rank < size(); ++rank) {
    if (at(rank).process) act(KillProcess{rank, grace});
  }
}

// Before a restart. A process whose own code failed may be in any state (a broken CUDA context stays broken), so only
// the others are kept: by default only those that are worth it, because state of this attempt in their libraries and
// modules may break the next one.
void Decider::cancel_or_kill() {
  // The cause of the deadlock is in one of the processes, and it is unknown which one.
  const bool nobody_knows = std::any_of(state_.failures.begin(), state_.failures.end(),
                                        [](const Failure& each) { return each.cause == "deadlock"; });
  std::set<int> to_blame;
  for (const auto& failure : state_.failures) {
    if (!failure.collateral) to_blame.insert(failure.rank);
  }
  const std::set<int> other_gpus = ranks_with_other_gpus();
  for (int rank = 0; rank < size(); ++rank) {
    Worker& worker = at(rank);
    const auto gang = state_.gangs.find(worker.seat.gang);
    const bool seated = gang == state_.gangs.end() || !gang->second.lost;
    const bool well = worker.process && worker.channel && seated && !to_blame.contains(rank) && !nobody_knows &&
                      !other_gpus.contains(rank);
    const bool connected = worker.phase != WorkerPhase::kAbsent && worker.phase != WorkerPhase::kStarted;
    const bool untouched = worker.phase == WorkerPhase::kConnected;  // it has not received a function yet
    const bool keep = rules_.warm_restart.always.value_or(untouched || !worker.holds.empty());
    if (keep && well && connected) {
      worker.phase = WorkerPhase::kCancelled;
      act(SendCancel{rank, state_.failures.empty() ? "the gang is resized" : "the next attempt starts",
                     rules_.warm_restart.automatic()});
    } else if (worker.process) {
      state_.doomed.insert(rank);
    }
  }
  kill_doomed(true);
}

// A process frees its memory when it ends, and with NCCL a rank that is still in a collective may be reading it: it
// would crash instead of being kept. So cancelled workers abort their collectives first. They have half of their time
// for it: the end of the others also ends collectives that cannot be aborted, such as those of Gloo.
void Decider::kill_doomed(bool waits) {
  if (state_.doomed.empty()) return;
  const bool aborted = all_workers(
      [](const Worker& each) { return !each.process || each.phase != WorkerPhase::kCancelled || each.aborted; });
  if (waits && !aborted) return;
  for (const int rank : std::exchange(state_.doomed, {})) act(KillProcess{rank, 0.0});
  if (state_.phase == Phase::kStopping) act(DisarmTimer{Timer::kAbort});
}

// The gangs may have changed since workers were cancelled.
bool Decider::replace_those_with_other_gpus() {
  bool some = false;
  for (const int rank : ranks_with_other_gpus()) {
    Worker& worker = at(rank);
    if (!worker.process || worker.phase != WorkerPhase::kReady) continue;
    worker.phase = WorkerPhase::kFailed;
    act(KillProcess{rank, 0.0});
    some = true;
  }
  return some;
}

void Decider::enter_stopping(Next next) {
  state_.phase = Phase::kStopping;
  if (state_.next != Next::kFinish) state_.next = next;
  act(DisarmTimer{Timer::kStart});
  act(DisarmTimer{Timer::kCause});
  if (state_.silence_timed) act(DisarmTimer{Timer::kSilence});
  state_.silence_timed = false;
  if (rules_.elastic()) act(DisarmTimer{Timer::kResize});
  if (state_.preemption) act(DisarmTimer{Timer::kPreempt});
  const bool cancelling = std::any_of(state_.workers.begin(), state_.workers.end(),
                                      [](const Worker& each) { return each.phase == WorkerPhase::kCancelled; });
  act(ArmTimer{Timer::kStop, cancelling ? rules_.cancel_timeout_s : rules_.stop_grace_s});
  if (!state_.doomed.empty()) act(ArmTimer{Timer::kAbort, rules_.cancel_timeout_s / 2});
  end_when_gone();
}

void Decider::end_when_gone() {
  if (state_.phase != Phase::kStopping) return;
  const bool restart = state_.next == Next::kRestart;
  const bool gone =
      all_workers([&](const Worker& each) { return !each.process || (restart && each.phase == WorkerPhase::kReady); });
  // The next attempt resumes from the newest checkpoint, so it must be known which one that is.
  if (!gone || state_.commits_in_flight > 0) return;
  if (restart && replace_those_with_other_gpus()) return;
  act(DisarmTimer{Timer::kStop});
  if (must_collect()) {
    if (!restart) state_.phase = Phase::kValidating;
    return;
  }
  if (restart) {
    const double pause = pause_before_restart();
    if (pause <= 0 || std::exchange(state_.paused, false)) {
      if (!replace_lost_gangs()) start_attempt();
      return;
    }
    state_.phase = Phase::kPausing;
    record("pausing", {{"seconds", pause}, {"failures", state_.failures_in_row}});
    act(ArmTimer{Timer::kPause, pause});
    return;
  }
  for (const auto& [id, gang] : state_.gangs) act(ReleaseGang{id});
  if (validating() && state_.outcome != Outcome::kStopped) {
    state_.phase = Phase::kValidating;
  } else {
    finish();
  }
}

void Decider::finish() {
  state_.phase = Phase::kFinished;
  Dict fields{{"outcome", to_string(state_.outcome)},
              {"attempts", state_.attempt - state_.first_attempt + 1},
              {"reports", state_.reports.count()}};
  if (!state_.error.empty()) fields["error"] = state_.error;
  const ReturnValue& returned = state_.return_value;
  // A pickle is stored in a separate file.
  if (state_.outcome == Outcome::kFinished && returned.pickled) fields["return_value_pickled"] = true;
  if (state_.outcome == Outcome::kFinished && !returned.pickled) fields["return_value"] = returned.value;
  record("run_finished", std::move(fields));
  act(Finish{});
}

Decision decide(RunState state, Event event, const Rules& rules) {
  if (state.phase == Phase::kFinished) return {std::move(state), {}};
  Decider decider(std::move(state), rules);
  std::visit([&](auto&& held) { decider.on(std::move(held)); }, std::move(event));
  return std::move(decider).take();
}

}  // namespace trireme::control
