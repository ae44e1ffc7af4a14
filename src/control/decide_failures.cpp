// Failures, their causes, and whether the run continues.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/text.h"
#include "control/decider.h"
#include "control/failure_policy.h"

namespace trireme::control {

void Decider::on(FunctionFailed event) {
  Worker& worker = at(event.rank);
  // A cancelled worker leaves its function with an error.
  if (worker.phase == WorkerPhase::kCancelled || worker.phase == WorkerPhase::kReady) return;
  worker.phase = WorkerPhase::kFailed;
  stop_when_drained();
  if (!before_the_end()) return;
  Failure failure = failure_of(event.rank, "exception", std::move(event.error_type), std::move(event.message));
  failure.traceback = std::move(event.traceback);
  failure.exception = std::move(event.exception);
  fail(std::move(failure));
}

void Decider::on(const HangNoticed& event) {
  if (state_.phase != Phase::kRunning) return;
  record("hang_detected",
         {{"rank", event.rank}, {"summary", event.summary}, {"path", event.path}, {"next", rules_.on_hang}});
  if (rules_.on_hang == "warn") return;
  state_.last_failure = rules_.on_hang == "fail";
  at(event.rank).phase = WorkerPhase::kFailed;
  fail(failure_of(event.rank, "hang", "Hang", fmt::format("{}; all stacks: {}", event.summary, event.path)));
}

void Decider::on(StacksTaken event) {
  if (state_.phase == Phase::kRunning) state_.stacks = std::move(event.stacks);
}

void Decider::on(const DeadlockFound& event) {
  if (state_.phase != Phase::kRunning || event.waits.empty()) return;
  std::vector<int> returned;
  for (int rank = 0; rank < size(); ++rank) {
    if (at(rank).phase == WorkerPhase::kDone) returned.push_back(rank);
  }
  const int first = event.waits.begin()->first;
  at(first).phase = WorkerPhase::kFailed;
  fail(failure_of(first, "deadlock", "Deadlock", deadlock_message(event.waits, returned)));
}

Failure Decider::failure_of(int rank, std::string cause, std::string error_type, std::string message) {
  const Worker& worker = at(rank);
  return Failure{rank, worker.pid, worker.host, std::move(cause), std::move(error_type), std::move(message), "",
                 {},   {},         false};
}

void Decider::start_timed_out() {
  if (state_.phase != Phase::kStarting) return;
  std::vector<int> silent;
  for (int rank = 0; rank < size(); ++rank) {
    if (at(rank).phase != WorkerPhase::kConnected) silent.push_back(rank);
  }
  if (silent.empty()) {
    // Another attempt would wait for the same storage. Its calls end by themselves, with an error if it is unavailable.
    record("warning", {{"message", fmt::format("all workers are ready and wait for the storage: cleaning up after the "
                                               "last attempt has taken more than {} s",
                                               base::amount(rules_.start_timeout_s))}});
    return act(ArmTimer{Timer::kStart, rules_.start_timeout_s});
  }
  fail_to_start(silent.front(), fmt::format("rank {} did not connect within {} s (start_timeout_s)",
                                            base::rank_list(silent), base::amount(rules_.start_timeout_s)));
}

void Decider::fail_to_start(int rank, std::string message) {
  if (!before_the_end()) return;
  fail(failure_of(rank, "start", "StartError", std::move(message)));
}

// A worker is lost when its process has ended and its connection is closed: only then has everything that it sent been
// read. If one of the two is late, the cause timer decides.
void Decider::judge_departure(int rank) {
  Worker& worker = at(rank);
  stop_when_drained();
  if (!before_the_end()) return;
  if (worker.phase == WorkerPhase::kDone || worker.phase == WorkerPhase::kFailed) return;
  bool gone = worker.exit && !worker.channel;
  if (!gone) return wait_for_cause();
  fail_departed(rank);
}

void Decider::fail_departed(int rank) {
  Worker& worker = at(rank);
  bool connected = worker.phase != WorkerPhase::kStarted && worker.phase != WorkerPhase::kAbsent;
  Failure failure = failure_of(rank, "lost", "WorkerLost", fmt::format("its connection was lost: {}", worker.lost));
  if (worker.exit) {
    bool by_signal = worker.exit->kind == engine::ExitStatus::Kind::kSignal;
    failure.cause = !connected ? "start" : by_signal ? "signal" : "exit";
    failure.error_type = by_signal ? "WorkerKilled" : "WorkerExited";
    failure.message = fmt::format("the process {} with {} before the training function returned",
                                  by_signal ? "was killed" : "ended", engine::to_string(*worker.exit));
    // Its last output was lost with the log.
    if (!worker.full_log.empty()) {
      failure.message += fmt::format("; no space is left for its log, {}: free space there", worker.full_log);
    }
  }
  if (!worker.watchdog.empty()) {
    const bool jax = ends_by_jax(worker.watchdog);
    failure.cause = "watchdog";
    failure.error_type = jax ? "JaxWatchdog" : "NcclWatchdog";
    failure.message = fmt::format("{} ended the process: {}", jax ? "JAX's coordination service" : "NCCL's watchdog",
                                  worker.watchdog);
  }
  if (!worker.out_of_memory.empty()) {
    failure.cause = "out_of_memory";
    failure.error_type = "OutOfMemory";
    failure.message = fmt::format("the kernel killed the process because memory ran out: {}", worker.out_of_memory);
  }
  if (!worker.node_lost.empty()) {
    failure.cause = "node_lost";
    failure.error_type = "NodeLost";
    failure.message = worker.node_lost;
  }
  worker.phase = WorkerPhase::kFailed;
  if (preempted(rank)) {
    failure.cause = "preemption";
    failure.error_type = "Preempted";
    failure.message = fmt::format("announced ({}): {}", state_.preemption->why, failure.message);
  }
  fail(std::move(failure));
}

// A run that already ends for another reason does not change its outcome.
void Decider::fail_or_warn(Failure failure) {
  if (before_the_end()) return fail(std::move(failure));
  record("warning", {{"message", failure.message}});
}

void Decider::fail(Failure failure) {
  const bool clear = is_clear(failure);
  const bool was_clear = std::any_of(state_.failures.begin(), state_.failures.end(), is_clear);
  add_failure(state_.failures, std::move(failure));
  if (!clear) return wait_for_cause();
  state_.phase = Phase::kFailing;
  // The first clear cause shortens the wait that an unclear one may have started.
  if (!was_clear) act(ArmTimer{Timer::kCause, rules_.echo_window_s});
}

void Decider::wait_for_cause() {
  if (state_.phase == Phase::kFailing) return;
  state_.phase = Phase::kFailing;
  act(ArmTimer{Timer::kCause, rules_.cause_window_s});
}

void Decider::settle_causes() {
  if (state_.phase != Phase::kFailing) return;
  for (int rank = 0; rank < size(); ++rank) {
    Worker& worker = at(rank);
    if (worker.phase == WorkerPhase::kDone || worker.phase == WorkerPhase::kFailed) continue;
    bool was_connected = worker.phase == WorkerPhase::kRunning || worker.phase == WorkerPhase::kConnected;
    if (worker.exit || (was_connected && !worker.channel)) fail_departed(rank);
  }
  if (state_.failures.empty()) {
    // The rank that looked lost had already reported that it was done.
    state_.phase = Phase::kRunning;
    return;
  }
  give_verdict();
}

void Decider::give_verdict() {
  state_.failures = in_order_of_blame(std::move(state_.failures));
  blame_who_returned();
  blame_who_stayed_away();
  record_failures();
  warn_of_incomplete();
  const Failure& root = state_.failures.front();
  state_.failures_in_row = state_.furthest > state_.began_at ? 0 : state_.failures_in_row;
  if (root.cause != "preemption") ++state_.failures_in_row;
  std::string told = headline(root);
  const bool repeats = repeats_itself(root);
  if (repeats) {
    state_.note = fmt::format(
        "the same error {} in a row at report {}: another restart would not help; see "
        "FailureConfig.repeated_error_limit",
        base::count_of(state_.same_errors, "time"), state_.last_error_at);
    told += fmt::format(" ({})", state_.note);
  }
  Dict fields{{"rank", root.rank}, {"message", told}, {"next", "fail"}};
  const bool again = spend(root, fields) && !repeats && !state_.last_failure;
  if (again) fields["next"] = "restart";
  record("attempt_failed", std::move(fields));
  if (!again) {
    state_.outcome = Outcome::kFailed;
    state_.error = told;
    // Ranks that have reported their failure wait for the controller's decision.
    for (int rank = 0; rank < size(); ++rank) {
      if (at(rank).channel && at(rank).phase == WorkerPhase::kFailed) act(SendGoodbye{rank});
    }
    kill_all(rules_.stop_grace_s);
  } else {
    cancel_or_kill();
  }
  enter_stopping(again ? Next::kRestart : Next::kFinish);
}

// Many ranks often fail with the same error: the first of them lists the others.
void Decider::record_failures() {
  const auto& all = state_.failures;
  for (auto failure = all.begin(); failure != all.end(); ++failure) {
    auto alike = [&](const Failure& other) {
      return std::tie(other.error_type, other.message, other.collateral) ==
             std::tie(failure->error_type, failure->message, failure->collateral);
    };
    RecordFailure told{*failure, state_.attempt};
    if (auto first = std::find_if(all.begin(), failure, alike); first != failure) {
      told.same_as = first->rank;
    } else {
      for (auto other = failure + 1; other != all.end(); ++other) {
        if (alike(*other)) told.alike.push_back(other->rank);
      }
    }
    act(std::move(told));
  }
}

// A rank that returns closes its connections, which looks like a loss to a rank that waits for it in a collective.
void Decider::blame_who_returned() {
  Failure& root = state_.failures.front();
  if (!is_loss_in_collective(root)) return;
  std::vector<int> returned;
  for (int rank = 0; rank < size(); ++rank) {
    if (at(rank).phase == WorkerPhase::kDone) returned.push_back(rank);
  }
  if (returned.empty()) return;
  Failure early =
      failure_of(returned.front(), "returned", "ReturnedEarly", returned_early_message(returned, root.rank));
  root.collateral = true;
  state_.failures.insert(state_.failures.begin(), std::move(early));
}

// Where ranks wait in a collective until it times out, the cause is a rank that did not take part.
void Decider::blame_who_stayed_away() {
  Failure& root = state_.failures.front();
  if (!is_collective_timeout(root)) return;
  const std::string stacks =
      state_.stacks ? fmt::format("; before that: {}; all stacks: {}", state_.stacks->summary, state_.stacks->path)
                    : "";
  std::vector<int> waited;
  for (const auto& failure : state_.failures) {
    if (is_collective_timeout(failure)) waited.push_back(failure.rank);
  }
  std::sort(waited.begin(), waited.end());
  auto where = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    return state_.stacks && index < state_.stacks->where.size() ? state_.stacks->where[index] : std::string();
  };
  // A rank that waits in the same place only has not timed out yet.
  std::vector<int> away;
  for (int rank = 0; rank < size(); ++rank) {
    const bool works = at(rank).phase == WorkerPhase::kRunning;
    if (works && (where(rank).empty() || where(rank) != where(root.rank))) away.push_back(rank);
  }
  if (away.empty()) {
    root.message += stacks;
    return;
  }
  Failure hang =
      failure_of(away.front(), "hang", "Hang", stayed_away_message(away, waited, where(away.front())) + stacks);
  at(away.front()).phase = WorkerPhase::kFailed;
  root.collateral = true;
  state_.failures.insert(state_.failures.begin(), std::move(hang));
}

bool Decider::spend(const Failure& root, Dict& told) {
  const bool start = root.cause == "start";
  const bool preemption = root.cause == "preemption";
  std::int64_t& used = start ? state_.starts_used : preemption ? state_.preemptions_used : state_.failures_used;
  told["budget"] = start ? "controller_failure_limit" : preemption ? "max_preemption_failures" : "max_failures";
  const std::int64_t limit = start ? rules_.start_limit : preemption ? rules_.max_preemptions : rules_.max_failures;
  const bool again = within_budget(used, limit);
  if (again) ++used;
  told["failures"] = again ? used : used + 1;
  told["max_failures"] = limit;
  return again;
}

bool Decider::repeats_itself(const Failure& root) {
  if (root.cause != "exception" && root.cause != "returned") {
    state_.same_errors = 0;
    return false;
  }
  const std::string error =
      root.error_type + ": " + without_numbers(std::string_view(root.message).substr(0, root.message.find('\n')));
  const std::int64_t place = state_.commits.next_report(root.rank);
  const bool same = state_.same_errors > 0 && error == state_.last_error && place == state_.last_error_at;
  state_.same_errors = same ? state_.same_errors + 1 : 1;
  state_.last_error = error;
  state_.last_error_at = place;
  return rules_.repeated_error_limit > 0 && state_.same_errors >= rules_.repeated_error_limit;
}

// None before the first restart: most failures happen only once.
double Decider::pause_before_restart() const {
  if (state_.failures.empty() || state_.failures_in_row < 2) return 0.0;
  if (state_.failures.front().cause == "preemption") return 0.0;
  return std::min(rules_.max_backoff_s, rules_.backoff_s * std::exp2(state_.failures_in_row - 2));
}

}  // namespace trireme::control
