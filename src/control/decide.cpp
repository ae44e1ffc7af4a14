#include "control/decide.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "control/failure_policy.h"

namespace trireme::control {
namespace {

// Whether what breaks is still a failure of the run: after that it only ends.
bool before_the_end(Phase phase) {
  return phase == Phase::kReserving || phase == Phase::kStarting || phase == Phase::kRunning ||
         phase == Phase::kFailing;
}

// One decision under way. Each `on` is one kind of event; what they share stands below them.
class Decider {
 public:
  Decider(RunState state, const Rules& rules) : state_(std::move(state)), rules_(rules) {}

  Decision take() && { return {std::move(state_), std::move(actions_)}; }

  void on(Begin) {
    if (state_.phase != Phase::kIdle) return;
    state_.phase = Phase::kReserving;
    // Those that an earlier start of the run did not come to.
    for (const auto& kept : state_.kept) {
      if (kept.pending()) request_validation(kept);
    }
    act(ReserveGang{});
  }

  void on(GangReserved event) {
    if (state_.phase != Phase::kReserving) return;
    state_.slots = std::move(event.slots);
    start_attempt();
  }

  void on(const ReservationFailed& event) {
    if (state_.phase != Phase::kReserving) return;
    state_.outcome = Outcome::kFailed;
    state_.error = event.message;
    finish();
  }

  void on(const ProcessStarted& event) {
    Worker& worker = at(event.rank);
    worker.pid = event.pid;
    worker.host = state_.slots[static_cast<std::size_t>(event.rank)].host;
    if (worker.phase == WorkerPhase::kAbsent) worker.phase = WorkerPhase::kStarted;
    record("worker_started",
           {{"rank", event.rank}, {"pid", event.pid}, {"host", worker.host}, {"forked", event.forked}});
  }

  void on(const ProcessStartFailed& event) {
    // The same program in the same place fails the same way: trying again would only repeat the line.
    at(event.rank).process = false;
    state_.starts_used = std::max<std::int64_t>(rules_.start_limit, 0);
    fail_to_start(event.rank, fmt::format("rank {} could not be started: {}", event.rank, event.message));
    end_when_gone();
  }

  void on(const ProcessExited& event) {
    Worker& worker = at(event.rank);
    worker.process = false;
    worker.exit = event.status;
    judge_departure(event.rank);
    end_when_gone();
  }

  void on(Connected event) {
    Worker& worker = at(event.rank);
    worker.channel = true;
    worker.pid = event.pid;
    worker.host = std::move(event.host);
    if (state_.phase != Phase::kStarting) return;
    worker.phase = WorkerPhase::kConnected;
    record("worker_connected", {{"rank", event.rank}, {"pid", worker.pid}, {"host", worker.host}});
    begin_when_complete();
  }

  void on(const ConnectionLost& event) {
    Worker& worker = at(event.rank);
    worker.channel = false;
    worker.lost = event.why;
    judge_departure(event.rank);
    end_when_gone();
  }

  void on(const FunctionEntered& event) {
    if (running()) record("function_entered", {{"rank", event.rank}});
  }

  void on(Reported event) {
    if (!running()) return;
    if (event.checkpoint && state_.commits.taken(event.index)) return part_came_too_late(event.rank, *event.checkpoint);
    ++state_.reports;
    state_.commits.report(event.rank, event.index, event.metrics, event.checkpoint, event.validation);
    Dict fields{{"rank", event.rank}, {"index", event.index}};
    fields["metrics"] = std::move(event.metrics);
    if (event.checkpoint) fields["checkpoint"] = *event.checkpoint;
    record("report", std::move(fields));
    commit_what_is_ready();
    watch_silent_ranks();
  }

  void on(Uploaded event) {
    if (event.failure) return upload_failed(event.rank, event.index, *event.failure);
    if (!running()) return;
    state_.commits.uploaded(event.rank, event.index, std::move(event.files));
    commit_what_is_ready();
  }

  void on(CommitEnded event) {
    --state_.commits_in_flight;
    const ReadyCheckpoint& ready = event.checkpoint;
    if (event.failure) {
      upload_failed(0, ready.index, *event.failure);
    } else {
      for (const auto& conflict : event.conflicts) {
        record("warning", {{"message", fmt::format("{}: ranks wrote different content to the same file ({}); the last "
                                                   "one stands. Put the rank into the file's name",
                                                   ready.name, conflict)}});
      }
      keep(std::move(event.checkpoint));
    }
    finish_when_done();
    stop_when_drained();
    end_when_gone();
  }

  void on(ValidationEnded event) {
    if (auto outdated = state_.outdated_validations.find(event.name); outdated != state_.outdated_validations.end()) {
      if (--outdated->second == 0) state_.outdated_validations.erase(outdated);
      return;
    }
    auto it = std::find_if(state_.kept.begin(), state_.kept.end(),
                           [&](const KeptCheckpoint& each) { return each.name == event.name && each.pending(); });
    if (it == state_.kept.end()) return;
    it->status = event.status;
    it->validation = {};
    // What the validation found stands above what was reported.
    for (auto& [key, value] : event.metrics) it->metrics[key] = value;
    act(UpdateManifest{*it});
    Dict fields{{"name", it->name}, {"index", it->index}, {"status", checkpoint::to_string(it->status)}};
    if (!event.message.empty()) fields["message"] = event.message;
    fields["metrics"] = std::move(event.metrics);
    record("checkpoint_validated", std::move(fields));
    const std::int64_t index = it->index;
    remove_surplus();
    act(TellCommitted{index});
    if (state_.phase == Phase::kValidating && !validating()) finish();
  }

  void on(const UploadsDrained& event) {
    at(event.rank).drained = true;
    stop_when_drained();
  }

  void on(FunctionReturned event) {
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

  void on(FunctionFailed event) {
    Worker& worker = at(event.rank);
    worker.phase = WorkerPhase::kFailed;
    stop_when_drained();
    if (!before_the_end(state_.phase)) return;
    fail(Failure{event.rank,
                 worker.pid,
                 worker.host,
                 "exception",
                 std::move(event.error_type),
                 std::move(event.message),
                 std::move(event.traceback),
                 std::move(event.exception),
                 {},
                 false});
  }

  void on(const StopRequested& event) {
    if (state_.phase == Phase::kFinished) return;
    if (state_.phase == Phase::kValidating) {
      // How the training ended is known. The manifests keep what is not validated yet: the next start asks again.
      record("stop_requested", {{"why", event.why}, {"hard", event.hard}});
      return finish();
    }
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
      act(ReleaseGang{});
      return finish();
    }
    if (state_.phase == Phase::kRunning && !event.hard) return drain();
    kill_all(grace);
    enter_stopping(Next::kFinish);
  }

  void on(const TimerFired& event) {
    switch (event.timer) {
      case Timer::kStart: return start_timed_out();
      case Timer::kCause: return settle_causes();
      case Timer::kSilence: return give_up_on_silent_ranks();
      case Timer::kStop:
        if (state_.phase == Phase::kStopping) kill_all(0.0);
        return;
    }
  }

 private:
  Worker& at(int rank) {
    TRIREME_CHECK(rank >= 0 && rank < size(), "there is no rank {}", rank);
    return state_.workers[static_cast<std::size_t>(rank)];
  }
  int size() const { return static_cast<int>(state_.workers.size()); }
  bool running() const {
    return state_.phase == Phase::kRunning || state_.phase == Phase::kFailing || state_.phase == Phase::kDraining;
  }
  bool validating() const {
    return std::any_of(state_.kept.begin(), state_.kept.end(), [](const auto& each) { return each.pending(); });
  }

  template <typename T>
  void act(T action) {
    actions_.emplace_back(std::move(action));
  }

  void record(const char* event, Dict fields) {
    fields["attempt"] = state_.attempt;
    act(Record{event, std::move(fields)});
  }

  void start_attempt() {
    state_.phase = Phase::kStarting;
    state_.workers.assign(static_cast<std::size_t>(rules_.num_workers), Worker{});
    state_.failures.clear();
    state_.next = Next::kNone;
    state_.commits = state_.commits.next_attempt(rules_.num_workers);
    record("attempt_started", {{"num_workers", rules_.num_workers}});
    act(ResetAttempt{});
    for (int rank = 0; rank < size(); ++rank) {
      // From now on, not from the engine's answer: a stop in between must wait for it.
      at(rank).process = true;
      act(StartProcess{rank});
    }
    act(ArmTimer{Timer::kStart, rules_.start_timeout_s});
  }

  void begin_when_complete() {
    bool all = std::all_of(state_.workers.begin(), state_.workers.end(),
                           [](const Worker& worker) { return worker.phase == WorkerPhase::kConnected; });
    if (!all) return;
    state_.phase = Phase::kRunning;
    act(DisarmTimer{Timer::kStart});
    for (int rank = 0; rank < size(); ++rank) {
      at(rank).phase = WorkerPhase::kRunning;
      act(SendStart{rank});
    }
    record("training_started", {{"num_workers", size()}});
  }

  void start_timed_out() {
    if (state_.phase != Phase::kStarting) return;
    std::vector<int> silent;
    for (int rank = 0; rank < size(); ++rank) {
      if (at(rank).phase != WorkerPhase::kConnected) silent.push_back(rank);
    }
    fail_to_start(silent.front(), fmt::format("rank {} did not say hello within {} s (start_timeout_s)",
                                              base::rank_list(silent), base::amount(rules_.start_timeout_s)));
  }

  void fail_to_start(int rank, std::string message) {
    if (!before_the_end(state_.phase)) return;
    fail(Failure{rank, at(rank).pid, at(rank).host, "start", "StartError", std::move(message), "", {}, {}, false});
  }

  // A worker is gone for good when its process has ended and its connection is closed: only then has everything that it
  // sent been read. Where one of the two is late, the cause timer settles it.
  void judge_departure(int rank) {
    Worker& worker = at(rank);
    stop_when_drained();
    if (!before_the_end(state_.phase)) return;
    if (worker.phase == WorkerPhase::kDone || worker.phase == WorkerPhase::kFailed) return;
    bool gone = worker.exit && !worker.channel;
    if (!gone) return wait_for_cause();
    fail_departed(rank);
  }

  void fail_departed(int rank) {
    Worker& worker = at(rank);
    bool connected = worker.phase != WorkerPhase::kStarted && worker.phase != WorkerPhase::kAbsent;
    Failure failure{rank, worker.pid, worker.host, "lost", "", "", "", {}, {}, false};
    if (worker.exit) {
      bool by_signal = worker.exit->kind == engine::ExitStatus::Kind::kSignal;
      failure.cause = !connected ? "start" : by_signal ? "signal" : "exit";
      failure.error_type = by_signal ? "WorkerKilled" : "WorkerExited";
      failure.message = fmt::format("the process {} with {} before the training function returned",
                                    by_signal ? "was killed" : "ended", engine::to_string(*worker.exit));
    } else {
      failure.error_type = "WorkerLost";
      failure.message = fmt::format("its connection was lost: {}", worker.lost);
    }
    worker.phase = WorkerPhase::kFailed;
    fail(std::move(failure));
  }

  void part_came_too_late(int rank, const std::string& name) {
    Failure failure{rank,
                    at(rank).pid,
                    at(rank).host,
                    "exception",
                    "LateCheckpoint",
                    fmt::format("{} was committed without rank {}: its part came too late", name, rank),
                    "",
                    {},
                    {},
                    false};
    fail_or_warn(std::move(failure));
  }

  void upload_failed(int rank, std::int64_t index, const std::string& why) {
    Failure failure{rank,
                    at(rank).pid,
                    at(rank).host,
                    "exception",
                    "UploadError",
                    fmt::format("the checkpoint of report {} could not be stored: {}", index, why),
                    "",
                    {},
                    {},
                    false};
    fail_or_warn(std::move(failure));
  }

  // A run that ends for another reason does not change its mind.
  void fail_or_warn(Failure failure) {
    if (before_the_end(state_.phase)) return fail(std::move(failure));
    record("warning", {{"message", failure.message}});
  }

  void keep(ReadyCheckpoint ready) {
    state_.commits.committed(ready.index);
    Dict fields{{"index", ready.index}, {"name", ready.name}};
    fields["metrics"] = ready.metrics;
    KeptCheckpoint kept{ready.index, ready.name, std::move(ready.metrics), checkpoint::Status::kCommitted, {}};
    if (!ready.validation.is_null()) {
      kept.status = checkpoint::Status::kPendingValidation;
      kept.validation = std::move(ready.validation);
    }
    fields["status"] = checkpoint::to_string(kept.status);
    record("checkpoint_committed", std::move(fields));
    if (kept.pending()) request_validation(kept);
    // A name that the user chose again has replaced the older one.
    for (const auto& each : state_.kept) {
      if (each.name == kept.name && each.pending()) ++state_.outdated_validations[each.name];
    }
    std::erase_if(state_.kept, [&](const KeptCheckpoint& each) { return each.name == kept.name; });
    const std::int64_t index = kept.index;
    state_.kept.push_back(std::move(kept));
    remove_surplus();
    act(TellCommitted{index});
  }

  void request_validation(const KeptCheckpoint& kept) {
    Dict fields{{"name", kept.name}, {"index", kept.index}};
    const Dict* asked = kept.validation.get_if<Dict>();
    for (const char* key : {"fn_kwargs", "timeout_s"}) {
      const Value* value = asked ? asked->find(key) : nullptr;
      fields[key] = value ? *value : Value();
    }
    record("validation_requested", std::move(fields));
  }

  void remove_surplus() {
    for (const auto& name : surplus(state_.kept, rules_.checkpoints)) {
      std::erase_if(state_.kept, [&](const KeptCheckpoint& each) { return each.name == name; });
      act(RemoveCheckpoint{name});
      record("checkpoint_removed", {{"name", name}});
    }
  }

  void finish_when_done() {
    // A checkpoint that could not be stored is a failure also where the function took no notice: its verdict is under
    // way.
    if (!before_the_end(state_.phase) || !state_.failures.empty() || state_.workers.empty()) return;
    bool all = std::all_of(state_.workers.begin(), state_.workers.end(),
                           [](const Worker& each) { return each.phase == WorkerPhase::kDone; });
    if (!all || state_.commits_in_flight > 0) return;
    state_.outcome = Outcome::kFinished;
    for (int rank = 0; rank < size(); ++rank) act(SendGoodbye{rank});
    enter_stopping(Next::kFinish);
  }

  void drain() {
    state_.phase = Phase::kDraining;
    for (int rank = 0; rank < size(); ++rank) {
      if (at(rank).channel) act(SendStop{rank});
    }
    stop_when_drained();
  }

  // What was on its way to storage has arrived: now the workers may go.
  void stop_when_drained() {
    if (state_.phase != Phase::kDraining || state_.commits_in_flight > 0) return;
    bool all = std::all_of(state_.workers.begin(), state_.workers.end(), [](const Worker& each) {
      return each.drained || !each.channel || each.phase == WorkerPhase::kDone || each.phase == WorkerPhase::kFailed;
    });
    if (!all) return;
    kill_all(rules_.stop_grace_s);
    enter_stopping(Next::kFinish);
  }

  void fail(Failure failure) {
    bool clear = !looks_like_peer_loss(failure);
    bool was_clear = std::any_of(state_.failures.begin(), state_.failures.end(),
                                 [](const Failure& each) { return !looks_like_peer_loss(each); });
    state_.failures.push_back(std::move(failure));
    if (!clear) return wait_for_cause();
    state_.phase = Phase::kFailing;
    // The first clear cause shortens the wait that a vague one may have begun.
    if (!was_clear) act(ArmTimer{Timer::kCause, rules_.echo_window_s});
  }

  void wait_for_cause() {
    if (state_.phase == Phase::kFailing) return;
    state_.phase = Phase::kFailing;
    act(ArmTimer{Timer::kCause, rules_.cause_window_s});
  }

  void settle_causes() {
    if (state_.phase != Phase::kFailing) return;
    for (int rank = 0; rank < size(); ++rank) {
      Worker& worker = at(rank);
      if (worker.phase == WorkerPhase::kDone || worker.phase == WorkerPhase::kFailed) continue;
      bool was_connected = worker.phase == WorkerPhase::kRunning || worker.phase == WorkerPhase::kConnected;
      if (worker.exit || (was_connected && !worker.channel)) fail_departed(rank);
    }
    if (state_.failures.empty()) {
      // What looked like a departure was a rank that had already said "done".
      state_.phase = Phase::kRunning;
      return;
    }
    give_verdict();
  }

  void give_verdict() {
    state_.failures = in_order_of_blame(std::move(state_.failures));
    for (const auto& failure : state_.failures) act(RecordFailure{failure});
    const Failure& root = state_.failures.front();
    bool start = root.cause == "start";
    std::int64_t& used = start ? state_.starts_used : state_.failures_used;
    std::int64_t limit = start ? rules_.start_limit : rules_.max_failures;
    bool again = within_budget(used, limit);
    if (again) ++used;
    Dict fields{{"rank", root.rank}, {"message", headline(root)}, {"next", again ? "restart" : "fail"}};
    fields["failures"] = again ? used : used + 1;
    fields["max_failures"] = limit;
    record("attempt_failed", std::move(fields));
    if (!again) {
      state_.outcome = Outcome::kFailed;
      state_.error = headline(root);
    }
    kill_all(again ? 0.0 : rules_.stop_grace_s);
    enter_stopping(again ? Next::kRestart : Next::kFinish);
  }

  void watch_silent_ranks() {
    if (state_.silence_timed || !state_.commits.held_up_by_silent_ranks()) return;
    state_.silence_timed = true;
    act(ArmTimer{Timer::kSilence, rules_.silent_rank_s});
  }

  void give_up_on_silent_ranks() {
    state_.silence_timed = false;
    if (!running()) return;
    state_.commits.give_up_on_silent_ranks();
    commit_what_is_ready();
  }

  void commit_what_is_ready() {
    for (auto& ready : state_.commits.take_ready()) {
      if (!ready.missing.empty()) {
        record("warning", {{"message", fmt::format("{} is committed without rank {}, which has never reported",
                                                   ready.name, base::rank_list(ready.missing))}});
      }
      ++state_.commits_in_flight;
      act(Commit{std::move(ready)});
    }
  }

  void kill_all(double grace) {
    for (int rank = 0; rank < size(); ++rank) {
      if (at(rank).process) act(KillProcess{rank, grace});
    }
  }

  void enter_stopping(Next next) {
    state_.phase = Phase::kStopping;
    if (state_.next != Next::kFinish) state_.next = next;
    act(DisarmTimer{Timer::kStart});
    act(DisarmTimer{Timer::kCause});
    if (state_.silence_timed) act(DisarmTimer{Timer::kSilence});
    state_.silence_timed = false;
    act(ArmTimer{Timer::kStop, rules_.stop_grace_s});
    end_when_gone();
  }

  void end_when_gone() {
    if (state_.phase != Phase::kStopping) return;
    bool some =
        std::any_of(state_.workers.begin(), state_.workers.end(), [](const Worker& each) { return each.process; });
    // The next attempt goes on from the newest checkpoint: it must be known which one that is.
    if (some || state_.commits_in_flight > 0) return;
    act(DisarmTimer{Timer::kStop});
    if (state_.next == Next::kRestart) {
      ++state_.attempt;
      start_attempt();
    } else {
      act(ReleaseGang{});
      if (validating() && state_.outcome != Outcome::kStopped) {
        state_.phase = Phase::kValidating;
      } else {
        finish();
      }
    }
  }

  void finish() {
    state_.phase = Phase::kFinished;
    Dict fields{{"outcome", to_string(state_.outcome)},
                {"attempts", state_.attempt - state_.first_attempt + 1},
                {"reports", state_.reports}};
    if (!state_.error.empty()) fields["error"] = state_.error;
    const ReturnValue& returned = state_.return_value;
    // A pickle goes into a file of its own.
    if (state_.outcome == Outcome::kFinished && returned.pickled) fields["return_value_pickled"] = true;
    if (state_.outcome == Outcome::kFinished && !returned.pickled) fields["return_value"] = returned.value;
    record("run_finished", std::move(fields));
    act(Finish{});
  }

  RunState state_;
  std::vector<Action> actions_;
  const Rules& rules_;
};

}  // namespace

Decision decide(RunState state, Event event, const Rules& rules) {
  if (state.phase == Phase::kFinished) return {std::move(state), {}};
  Decider decider(std::move(state), rules);
  std::visit([&](auto&& held) { decider.on(std::move(held)); }, std::move(event));
  return std::move(decider).take();
}

}  // namespace trireme::control
