#pragma once

#include <set>
#include <utility>
#include <vector>

#include "control/decide.h"

namespace trireme::control {

// One decision in progress. Each `on` handles one type of event; shared functions follow. The parts are in separate
// files: decide.cpp (the course of an attempt), decide_checkpoints.cpp, decide_failures.cpp, decide_size.cpp.
class Decider {
 public:
  Decider(RunState state, const Rules& rules) : state_(std::move(state)), rules_(rules) {}

  Decision take() && { return {std::move(state_), std::move(actions_)}; }

  void on(Begin);
  void on(GangReserved event);
  void on(const ReservationFailed& event);
  void on(const GangReclaimed& event);
  void on(const GangLost& event);
  void on(RoomGrew);
  void on(const ProcessStarted& event);
  void on(const ProcessStartFailed& event);
  void on(ProcessExited event);
  void on(Connected event);
  void on(const ConnectionLost& event);
  void on(const FunctionEntered& event);
  void on(Reported event);
  void on(Uploaded event);
  void on(CommitEnded event);
  void on(StorageSettled event);
  void on(const CheckpointStored& event);
  void on(const CheckpointLost& event);
  void on(ValidationEnded event);
  void on(const UploadsDrained& event);
  void on(FunctionReturned event);
  void on(FunctionFailed event);
  void on(const CollectivesAborted& event);
  void on(const BecameReady& event);
  void on(const PreemptionAnnounced& event);
  void on(const HangNoticed& event);
  void on(const DeadlockFound& event);
  void on(StacksTaken event);
  void on(const StopRequested& event);
  void on(const TimerFired& event);

 private:
  Worker& at(int rank);
  int size() const { return static_cast<int>(state_.workers.size()); }
  bool running() const;
  // Whether `is_there` holds for every worker. It is asked at every event, so it begins with the worker that was found
  // lacking the last time: a phase in which all of them change costs one pass over them, and not one for each event.
  template <typename Predicate>
  bool all_workers(Predicate is_there) {
    const std::size_t count = state_.workers.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t rank = (state_.laggard + i) % count;
      if (is_there(state_.workers[rank])) continue;
      state_.laggard = rank;
      return false;
    }
    return true;
  }
  // Whether an error still counts as a failure of the run; later the run only ends.
  bool before_the_end() const;

  template <typename T>
  void act(T action) {
    actions_.emplace_back(std::move(action));
  }
  void record(const char* event, Dict fields);

  // The course of an attempt.
  void start_attempt();
  std::vector<Worker> next_workers() const;
  std::set<int> ranks_with_other_gpus() const;
  bool replace_those_with_other_gpus();
  void seat_workers();
  void begin_when_complete();
  void finish_when_done();
  void drain();
  void stop_when_drained();
  void kill_all(double grace);
  void cancel_or_kill();
  void kill_doomed(bool waits);
  void enter_stopping(Next next);
  void end_when_gone();
  void finish();

  // Checkpoints.
  void part_came_too_late(int rank, const std::string& name);
  void upload_failed(int rank, std::int64_t index, const std::string& why);
  void keep(ReadyCheckpoint ready);
  void request_validation(const KeptCheckpoint& kept);
  void remove_surplus();
  void forget_lost(const std::string& name);
  void collected(std::int64_t index);
  void give_up_collecting();
  bool must_collect() const;
  bool validating() const;
  void watch_silent_ranks();
  void give_up_on_silent_ranks();
  void commit_what_is_ready();
  void warn_of_positions(const ReadyCheckpoint& ready);
  void warn_of_incomplete();

  // Failures.
  Failure failure_of(int rank, std::string cause, std::string error_type, std::string message);
  void start_timed_out();
  void fail_to_start(int rank, std::string message);
  void judge_departure(int rank);
  void fail_departed(int rank);
  void fail_or_warn(Failure failure);
  void fail(Failure failure);
  void wait_for_cause();
  void settle_causes();
  void give_verdict();
  void blame_who_returned();
  void blame_who_stayed_away();
  void record_failures();
  // Whether the budget allows this failure, which it then counts; adds the numbers to `told`.
  bool spend(const Failure& root, Dict& told);
  bool repeats_itself(const Failure& root);
  double pause_before_restart() const;

  // The number of workers.
  int seats() const;
  bool reserving() const;
  bool giving_back() const;
  void start_when_reserved();
  void grow();
  void want_resize(const std::string& why);
  void resize(const std::string& why);
  void resize_at_checkpoint(std::int64_t index);
  void release_leaving();
  void request_room();
  bool replace_lost_gangs();
  bool preempted(int rank) const;
  bool everyone_preempted() const;
  void saved_before_preemption(std::int64_t index);
  void preemption_due(bool saved = false);

  RunState state_;
  std::vector<Action> actions_;
  const Rules& rules_;
};

}  // namespace trireme::control
