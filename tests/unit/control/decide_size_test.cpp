#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

namespace decide_size_test {

// Elastic runs, and workers that are about to be lost.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

RunMachine elastic(int num_workers, int least, int most) {
  RunMachine machine(num_workers);
  machine.rules.min_workers = least;
  machine.rules.max_workers = most;
  machine.rules.warm_restart = true;
  return machine;
}

// Every rank reports a checkpoint, and it is committed.
std::string commit(RunMachine& machine, std::int64_t index, std::vector<int> ranks) {
  for (int rank : ranks) {
    machine.on(Reported{rank, index, {}, "checkpoint_" + std::to_string(index)});
    machine.on(Uploaded{rank, index, std::nullopt});
  }
  return machine.commit_ended();
}

void become_ready(RunMachine& machine, std::vector<int> ranks) {
  for (int rank : ranks) machine.on(BecameReady{rank});
}

using Gpus = std::vector<std::string>;

engine::Slot gpu_slot(const std::string& id) { return {"node", "host", {{"GPU", 1}}, {id}}; }

}  // namespace

TEST_CASE("an elastic run requests its minimum, and the rest one by one") {
  RunMachine machine = elastic(4, 2, 4);
  CHECK(machine.on(Begin{}) == "reserve, reserve gang 1, reserve gang 2");
  CHECK(machine.on(GangReserved{RunMachine::slots(2)}) == "");
  CHECK(machine.on(GangReserved{RunMachine::slots(1), 1}) == "");
  // Another run was faster.
  CHECK(machine.on(ReservationFailed{"no room", 2}) ==
        "release gang 2, attempt_started, reset, start 0, start 1, start 2, settle, arm start 120");
}

TEST_CASE("it requests more once it has a checkpoint: without one it could not resize") {
  RunMachine machine = elastic(2, 2, 4);
  machine.run();
  CHECK(machine.on(RoomGrew{}) == "");
  CHECK(commit(machine, 0, {0, 1}) == "checkpoint_committed, tell 0, reserve gang 1");
  CHECK(machine.on(ReservationFailed{"no room", 1}) == "release gang 1");
  CHECK(commit(machine, 1, {0, 1}) == "checkpoint_committed, tell 1");
  CHECK(machine.on(RoomGrew{}) == "reserve gang 2");
}

TEST_CASE("it grows at a checkpoint, and survivors stay") {
  RunMachine machine = elastic(2, 2, 4);
  machine.state.kept = {{0, "checkpoint_0", {}, checkpoint::Status::kCommitted, {}}};
  machine.run();
  CHECK(machine.on(RoomGrew{}) == "reserve gang 1");
  CHECK(machine.on(RoomGrew{}) == "");
  CHECK(machine.on(GangReserved{RunMachine::slots(1), 1}) == "reserve gang 2");
  machine.on(Reported{0, 0, {}, std::nullopt});
  CHECK(machine.on(GangReserved{RunMachine::slots(1), 2}) == "resize_wanted, leave 0 at 1, leave 1 at 1");
  CHECK(machine.recorded("resize_wanted") ==
        Dict{{"attempt", 0}, {"from", 2}, {"to", 4}, {"why", "there is room for more workers"}});
  machine.on(Reported{1, 0, {}, std::nullopt});
  CHECK(commit(machine, 1, {0, 1}) ==
        "checkpoint_committed, tell 1, resizing, cancel 0, cancel 1, disarm start, disarm cause, disarm resize, "
        "arm stop 5");
  machine.on(BecameReady{1});
  CHECK(machine.on(BecameReady{0}) ==
        "disarm stop, attempt_started, reset 0<-0 1<-1, worker_kept, worker_kept, start 2, start 3, settle, arm start "
        "120");
  CHECK(machine.state.failures_used == 0);
  CHECK(machine.state.commits.resume_at() == 2);
}

TEST_CASE("there is no more room") {
  RunMachine machine = elastic(2, 2, 4);
  machine.state.kept = {{0, "checkpoint_0", {}, checkpoint::Status::kCommitted, {}}};
  machine.run();
  CHECK(machine.on(TimerFired{Timer::kResize}) == "arm resize 60, reserve gang 1");
  CHECK(machine.on(ReservationFailed{"no room", 1}) == "release gang 1");
  CHECK(machine.state.phase == Phase::kRunning);
}

TEST_CASE("it shrinks at a checkpoint when the engine reclaims room") {
  RunMachine machine = elastic(4, 2, 4);
  machine.run();
  CHECK(machine.on(GangReclaimed{1, "capacity was lowered", std::nullopt}) ==
        "resize_wanted, leave 0 at 0, leave 1 at 0, leave 2 at 0, leave 3 at 0");
  CHECK(machine.on(GangReclaimed{1, "again", std::nullopt}) == "");
  // It requests no room while the engine reclaims some.
  CHECK(machine.on(RoomGrew{}) == "");
  commit(machine, 0, {0, 1, 2, 3});
  become_ready(machine, {0, 1, 2});
  // Gang 1 had rank 2; higher ranks move up.
  CHECK(machine.on(BecameReady{3}) ==
        "disarm stop, release gang 1, attempt_started, reset 0<-0 1<-1 2<-3, worker_kept, worker_kept, worker_kept, "
        "settle, arm start 120, disarm start, begin 0, begin 1, begin 2, training_started, arm resize 60");
  CHECK(machine.state.workers.size() == 3);
}

TEST_CASE("room with a deadline is released at the deadline, with or without a checkpoint") {
  RunMachine machine = elastic(3, 2, 3);
  machine.run();
  CHECK(machine.on(GangReclaimed{1, "spot", 30.0}) ==
        "resize_wanted, leave 0 at 0, leave 1 at 0, leave 2 at 0, arm preempt 30");
  CHECK(machine.on(TimerFired{Timer::kPreempt}) ==
        "resizing, cancel 0, cancel 1, cancel 2, disarm start, disarm cause, disarm resize, arm stop 5");
}

TEST_CASE("the deadline ends with the release of the room: it forces no later resize") {
  RunMachine machine = elastic(3, 2, 3);
  machine.run();
  machine.on(GangReclaimed{1, "spot", 30.0});
  commit(machine, 0, {0, 1, 2});
  become_ready(machine, {0, 1, 2});
  machine.on(RoomGrew{});
  machine.on(GangReserved{RunMachine::slots(1), 2});
  CHECK(machine.count("resize_wanted") == 2);
  CHECK(machine.on(TimerFired{Timer::kPreempt}) == "");
  CHECK(machine.state.phase == Phase::kRunning);
}

TEST_CASE("a worker that is lost together with its room is not replaced") {
  RunMachine machine = elastic(3, 2, 3);
  machine.rules.max_failures = 1;
  machine.run();
  machine.on(GangReclaimed{1, "lowered", std::nullopt});
  machine.on(ProcessExited{2, kKilled});
  machine.on(ConnectionLost{2, "closed"});
  machine.on(TimerFired{Timer::kCause});
  machine.on(BecameReady{0});
  CHECK(
      machine.on(BecameReady{1}) ==
      "disarm stop, release gang 1, attempt_started, reset 0<-0 1<-1, worker_kept, worker_kept, settle, arm start 120, "
      "disarm start, begin 0, begin 1, training_started, arm resize 60");
}

TEST_CASE("a seat in which no process can be started is released if the run can continue without it") {
  RunMachine machine = elastic(3, 2, 3);
  machine.reserve();
  machine.on(ProcessStarted{0, 100, true});
  machine.on(ProcessStarted{1, 101, true});
  machine.on(Connected{0, 100, "host"});
  machine.on(Connected{1, 101, "host"});
  machine.on(ProcessStartFailed{2, "no such file"});
  machine.on(TimerFired{Timer::kCause});
  machine.on(BecameReady{0});
  CHECK(machine.on(BecameReady{1}).starts_with("disarm stop, release gang 1, attempt_started, reset 0<-0 1<-1"));
  CHECK(machine.state.phase == Phase::kRunning);
  CHECK(machine.state.workers.size() == 2);
}

TEST_CASE("a function that ends before the resize just ends") {
  RunMachine machine = elastic(1, 1, 2);
  machine.state.kept = {{0, "checkpoint_0", {}, checkpoint::Status::kCommitted, {}}};
  machine.run();
  machine.on(RoomGrew{});
  machine.on(GangReserved{RunMachine::slots(1), 1});
  machine.on(FunctionReturned{0, {}});
  CHECK(machine.on(ProcessExited{0, kCleanExit}) == "disarm stop, release, release gang 1, run_finished, finish");
}

TEST_CASE("an announced preemption: workers are notified, and a checkpoint saves all progress") {
  RunMachine machine(2);
  machine.rules.warm_restart = true;
  machine.run();
  machine.on(Reported{0, 0, {}, std::nullopt});
  CHECK(machine.on(PreemptionAnnounced{{1}, 30.0, "spot"}) ==
        "preemption_announced, tell that rank 1 goes in 30, arm preempt 30");
  CHECK(machine.on(PreemptionAnnounced{{1}, 10.0, "again"}) == "");
  machine.on(Reported{1, 0, {}, std::nullopt});
  CHECK(commit(machine, 1, {0, 1}) == "checkpoint_committed, tell 1, arm cause 0.02");
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 1 preemption, attempt_failed, cancel 0, disarm start, disarm cause, disarm preempt, arm stop 5, "
        "arm abort 2.5");
  CHECK(machine.on(CollectivesAborted{0}) == "kill 1 0, disarm abort");
  // Not a failure, and not limited.
  CHECK(machine.state.failures_used == 0);
  CHECK(machine.state.preemptions_used == 1);
  CHECK(machine.state.next == Next::kRestart);
}

TEST_CASE("a scheduler's deadline replaces the one that a signal was assumed to have") {
  RunMachine machine(2);
  machine.run();
  machine.on(PreemptionAnnounced{{0}, std::nullopt, "SIGTERM"});
  CHECK(machine.on(PreemptionAnnounced{{1}, std::nullopt, "SIGTERM"}) ==
        "preemption_announced, tell that rank 0-1 goes in 20");
  CHECK(machine.on(PreemptionAnnounced{{0, 1}, 90.0, "time limit", true}) ==
        "preemption_announced, tell that rank 0-1 goes in 90, arm preempt 90");
  CHECK(machine.on(PreemptionAnnounced{{0}, 80.0, "again", true}) == "");
  SUBCASE("the run continues on other nodes") {
    machine.on(TimerFired{Timer::kPreempt});
    CHECK(machine.state.failures.front().cause == "preemption");
  }
  SUBCASE("not if the driver ends too") {
    machine.on(PreemptionAnnounced{{}, std::nullopt, "SIGTERM to the driver"});
    CHECK(machine.on(TimerFired{Timer::kPreempt}) == "stop_requested, ask to stop 0, ask to stop 1");
  }
}

// Otherwise its files, and the rows that it has not read, would be missing.
TEST_CASE("a checkpoint that lacks a preempted rank is never committed") {
  struct Row {
    const char* what;
    int reports;  // of the preempted rank, each with a part of a checkpoint
    int stored;   // of those parts
    std::int64_t resumes_at;
  };
  for (const Row& row : {Row{"it has never reported", 0, 0, 0}, Row{"its first part is on the way", 1, 0, 0},
                         Row{"its first part is stored", 1, 1, 1}, Row{"its second part is on the way", 2, 1, 1},
                         Row{"everything is stored", 2, 2, 2}}) {
    for (const bool by_deadline : {false, true}) {
      CAPTURE(row.what);
      CAPTURE(by_deadline);
      RunMachine machine(3);
      machine.rules.checkpoints.num_to_keep = 1;
      machine.run();
      // After all reports, so that no commit saves all progress and ends the attempt first.
      auto name = [](int index) { return "checkpoint_" + std::to_string(index); };
      for (int i = 0; i < row.reports; ++i) machine.on(Reported{2, i, {}, name(i)});
      for (int i = 0; i < 2; ++i) {
        for (int rank : {0, 1}) machine.on(Reported{rank, i, {}, name(i)});
      }
      machine.on(PreemptionAnnounced{{2}, std::nullopt, "SIGTERM"});
      for (int i = 0; i < 2; ++i) {
        for (int rank : {0, 1}) machine.on(Uploaded{rank, i, std::nullopt});
      }
      for (int i = 0; i < row.stored; ++i) machine.on(Uploaded{2, i, std::nullopt});
      if (by_deadline) {
        machine.on(TimerFired{Timer::kPreempt});
      } else {
        machine.on(ConnectionLost{2, "closed"});
        machine.on(ProcessExited{2, kKilled});
      }
      machine.on(TimerFired{Timer::kSilence});
      for (std::int64_t i = 0; i < row.resumes_at; ++i) machine.commit_ended();
      CHECK(machine.commit_ended() == "no commit is under way");
      machine.on(TimerFired{Timer::kCause});
      CHECK(machine.state.failures.front().cause == "preemption");
      CHECK(machine.state.commits.resume_at() == row.resumes_at);
      CHECK(machine.count("checkpoint_committed") == row.resumes_at);
      CHECK(machine.count("checkpoint_removed") == std::max<std::int64_t>(0, row.resumes_at - 1));
      CHECK(machine.count("warning") == 2 - row.resumes_at);
      if (row.resumes_at < 2) {
        CHECK(
            machine.recorded("warning")["message"].as_string() ==
            "checkpoint_1 is not committed: rank 2 was preempted before its part was stored; the next attempt resumes "
            "from an earlier checkpoint");
      }
    }
  }
}

TEST_CASE("if all workers are preempted, the run ends and can be continued") {
  RunMachine machine(2);
  machine.run();
  CHECK(machine.on(PreemptionAnnounced{{}, 20.0, "SIGTERM to the driver"}) ==
        "preemption_announced, tell that rank 0-1 goes in 20, arm preempt 20");
  SUBCASE("after the last checkpoint") {
    const std::string last = commit(machine, 0, {0, 1});
    CHECK(last == "checkpoint_committed, tell 0, stop_requested, ask to stop 0, ask to stop 1");
  }
  SUBCASE("when the deadline has passed") {
    CHECK(machine.on(TimerFired{Timer::kPreempt}) == "stop_requested, ask to stop 0, ask to stop 1");
  }
  SUBCASE("when the functions return") {
    machine.on(FunctionReturned{0, {}});
    machine.on(FunctionReturned{1, {}});
    machine.exit_all(kCleanExit);
  }
  if (machine.state.phase == Phase::kDraining) {
    machine.on(UploadsDrained{0});
    machine.on(UploadsDrained{1});
    machine.exit_all();
  }
  CHECK(machine.state.outcome == Outcome::kStopped);
  CHECK(machine.state.error.find("SIGTERM to the driver") != std::string::npos);
}

TEST_CASE("announced preemptions have a separate budget") {
  RunMachine machine(1);
  machine.rules.max_preemptions = 0;
  machine.rules.max_failures = -1;
  machine.run();
  // One of one would be all workers, so two ranks are needed.
  RunMachine two(2);
  two.rules.max_preemptions = 0;
  two.rules.max_failures = -1;
  two.run();
  two.on(PreemptionAnnounced{{1}, 5.0, "spot"});
  two.on(TimerFired{Timer::kPreempt});
  two.on(TimerFired{Timer::kCause});
  CHECK(two.recorded("attempt_failed")["next"] == Value("fail"));
  CHECK(two.recorded("attempt_failed")["max_failures"] == Value(0));
}

TEST_CASE("a process whose list of GPUs changes is replaced: CUDA reads it only once") {
  struct Row {
    bool share;
    std::string resizing;
    std::string started;
    Gpus rank_0;
  };
  const std::vector<Row> rows = {
      {true, "kill 0 0, kill 1 0", "reset, start 0, start 1, start 2", {"4", "5", "6"}},
      {false, "cancel 0, cancel 1", "reset 0<-0 1<-1, worker_kept, worker_kept, start 2", {"4"}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.share);
    RunMachine machine = elastic(2, 2, 3);
    machine.rules.share_cuda_visible_devices = row.share;
    machine.state.kept = {{0, "checkpoint_0", {}, checkpoint::Status::kCommitted, {}}};
    machine.on(Begin{});
    machine.on(GangReserved{{gpu_slot("4"), gpu_slot("5")}});
    machine.start_processes();
    machine.connect();
    CHECK(machine.state.workers[1].visible_gpus == (row.share ? Gpus{"4", "5"} : Gpus{"5"}));
    machine.on(RoomGrew{});
    machine.on(GangReserved{{gpu_slot("6")}, 1});
    CHECK(commit(machine, 0, {0, 1}).find("resizing, " + row.resizing) != std::string::npos);
    become_ready(machine, {0, 1});
    std::string last;
    if (row.share) last = machine.exit_all();
    CHECK(to_text(machine.all).find("attempt_started, " + row.started) != std::string::npos);
    CHECK(machine.state.workers.size() == 3);
    CHECK(machine.state.workers[0].visible_gpus == row.rank_0);
  }
}

TEST_CASE("a process whose list of GPUs changes while others leave their function is replaced too") {
  RunMachine machine = elastic(3, 2, 3);
  machine.rules.share_cuda_visible_devices = true;
  machine.rules.max_failures = 1;
  machine.on(Begin{});
  machine.on(GangReserved{{gpu_slot("0"), gpu_slot("1")}});
  machine.on(GangReserved{{gpu_slot("2")}, 1});
  machine.start_processes();
  machine.connect();
  machine.on(raised(1));
  CHECK(machine.on(TimerFired{Timer::kCause}).find("cancel 0, cancel 2") != std::string::npos);
  CHECK(machine.on(CollectivesAborted{0}) == "");
  CHECK(machine.on(BecameReady{2}) == "kill 1 0, disarm abort");
  machine.on(ProcessExited{1, kKilled});
  machine.on(GangReclaimed{1, "lowered", std::nullopt});
  // The next attempt has two ranks, so rank 0 must not see the third GPU any more.
  CHECK(machine.on(BecameReady{0}) == "kill 0 0");
  CHECK(machine.on(ConnectionLost{0, "closed"}) == "");
  CHECK(machine.on(ProcessExited{0, kKilled}).find("release gang 1, attempt_started, reset, start 0, start 1") !=
        std::string::npos);
  CHECK(machine.state.workers[0].visible_gpus == Gpus{"0", "1"});
  CHECK(machine.state.failures_used == 1);
}

}  // namespace decide_size_test
