#include "control/decide.h"

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <set>

#include "base/check.h"
#include "unit/control/run_machine.h"

namespace decide_test {

// Every phase with every event: what is not in the table changes nothing.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

struct Row {
  const char* phase;
  const char* event;
  const char* then;
  const char* actions;
};

constexpr const char* kKill = "kill 0 5, kill 1 5, disarm start, disarm cause, arm stop 5";
constexpr const char* kStop = "stop_requested, kill 0 5, kill 1 5, disarm start, disarm cause, arm stop 5";
constexpr const char* kStopHard = "stop_requested, kill 0 0, kill 1 0, disarm start, disarm cause, arm stop 5";
constexpr const char* kKillNow = "kill 0 0, kill 1 0, disarm start, disarm cause, arm stop 5";
constexpr const char* kNoGang = "stop_requested, release, run_finished, finish";
constexpr const char* kCommitted = "checkpoint_committed, tell 0";
constexpr const char* kBegin = "worker_connected, disarm start, begin 0, begin 1, training_started";

// The events are about rank 1; rank 0 brought the run into the phase.
const std::vector<Row> kRows = {
    {"idle", "begin", "reserving", "reserve"},
    {"idle", "stop", "finished", "stop_requested, run_finished, finish"},
    {"idle", "stop hard", "finished", "stop_requested, run_finished, finish"},

    {"reserving", "gang reserved", "starting", "attempt_started, reset, start 0, start 1, settle, arm start 120"},
    {"reserving", "reservation failed", "finished", "run_finished, finish"},
    {"reserving", "stop", "finished", kNoGang},
    {"reserving", "stop hard", "finished", kNoGang},

    {"starting", "process started", "starting", "worker_started"},
    {"starting", "process start failed", "failing", "arm cause 0.02"},
    {"starting", "process exited", "failing", "arm cause 0.02"},
    {"starting", "connected", "running", kBegin},
    {"starting", "connection lost", "failing", "arm cause 0.5"},
    {"starting", "upload failed", "failing", "arm cause 0.5"},
    {"starting", "failed", "failing", "arm cause 0.02"},
    {"starting", "stop", "stopping", kStop},
    {"starting", "stop hard", "stopping", kStopHard},
    {"starting", "start timer", "failing", "arm cause 0.02"},

    {"running", "process started", "running", "worker_started"},
    {"running", "process start failed", "failing", "arm cause 0.02"},
    {"running", "process exited", "failing", "arm cause 0.5"},
    {"running", "connection lost", "failing", "arm cause 0.5"},
    {"running", "entered", "running", "function_entered"},
    {"running", "reported", "running", "report"},
    {"running", "upload failed", "failing", "arm cause 0.5"},
    {"running", "commit ended", "running", kCommitted},
    {"running", "commit failed", "failing", "arm cause 0.5"},
    {"running", "returned", "running", "worker_finished"},
    {"running", "failed", "failing", "arm cause 0.02"},
    {"running", "stop", "draining", "stop_requested, ask to stop 0, ask to stop 1"},
    {"running", "stop hard", "stopping", kStopHard},
    {"running", "gang reclaimed", "running", "preemption_announced, tell that rank 0-1 goes in 20, arm preempt 20"},
    {"running", "preemption", "running", "preemption_announced, tell that rank 1 goes in 5, arm preempt 5"},
    {"running", "hang", "running", "hang_detected"},
    {"running", "deadlock", "failing", "arm cause 0.02"},
    {"running", "resize timer", "running", "arm resize 60"},

    {"failing", "process started", "failing", "worker_started"},
    {"failing", "process start failed", "failing", "arm cause 0.02"},
    {"failing", "entered", "failing", "function_entered"},
    {"failing", "reported", "failing", "report"},
    {"failing", "commit ended", "failing", kCommitted},
    {"failing", "returned", "failing", "worker_finished"},
    {"failing", "failed", "failing", "arm cause 0.02"},
    {"failing", "stop", "stopping", kStop},
    {"failing", "stop hard", "stopping", kStopHard},
    {"failing", "cause timer", "stopping", "failure 0 lost, attempt_failed, "},  // and kKill

    {"draining", "process started", "draining", "worker_started"},
    {"draining", "connection lost", "stopping", kKill},
    {"draining", "entered", "draining", "function_entered"},
    {"draining", "reported", "draining", "report"},
    {"draining", "upload failed", "draining", "warning"},
    {"draining", "commit ended", "draining", kCommitted},
    {"draining", "commit failed", "draining", "warning"},
    {"draining", "drained", "stopping", kKill},
    {"draining", "returned", "stopping", "worker_finished, "},  // and kKill
    {"draining", "failed", "stopping", kKill},
    {"draining", "stop hard", "stopping", kKillNow},

    {"stopping to finish", "process started", "stopping", "worker_started"},
    {"stopping to finish", "upload failed", "stopping", "warning"},
    {"stopping to finish", "commit ended", "stopping", kCommitted},
    {"stopping to finish", "commit failed", "stopping", "warning"},
    {"stopping to finish", "stop hard", "stopping", kKillNow},
    {"stopping to finish", "stop timer", "stopping", "kill 0 0, kill 1 0"},

    {"stopping to restart", "process started", "stopping", "worker_started"},
    {"stopping to restart", "upload failed", "stopping", "warning"},
    {"stopping to restart", "commit ended", "stopping", kCommitted},
    {"stopping to restart", "commit failed", "stopping", "warning"},
    {"stopping to restart", "stop", "stopping", kStop},
    {"stopping to restart", "stop hard", "stopping", kStopHard},
    {"stopping to restart", "stop timer", "stopping", "kill 0 0, kill 1 0"},

    {"pausing", "process started", "pausing", "worker_started"},
    {"pausing", "upload failed", "pausing", "warning"},
    {"pausing", "stop", "finished",
     "stop_requested, disarm start, disarm cause, arm stop 5, disarm stop, release, run_finished, finish"},
    {"pausing", "stop hard", "finished",
     "stop_requested, disarm start, disarm cause, arm stop 5, disarm stop, release, run_finished, finish"},
    {"pausing", "pause timer", "starting",
     "disarm stop, attempt_started, reset, start 0, start 1, settle, arm start 120"},

    {"validating", "process started", "validating", "worker_started"},
    {"validating", "upload failed", "validating", "warning"},
    {"validating", "validation ended", "finished",
     "update checkpoint_0, checkpoint_validated, tell 0, run_finished, finish"},
    {"validating", "stop", "finished", "stop_requested, run_finished, finish"},
    {"validating", "stop hard", "finished", "stop_requested, run_finished, finish"},

    // What a lost node means for its ranks follows from the ends of their processes, and for the room when the next
    // attempt begins.
    {"reserving", "gang lost", "reserving", "node_lost, release, reserve"},
    {"starting", "gang lost", "starting", "node_lost"},
    {"running", "gang lost", "running", "node_lost"},
    {"failing", "gang lost", "failing", "node_lost"},
    {"draining", "gang lost", "draining", "node_lost"},
    {"stopping to finish", "gang lost", "stopping", "node_lost"},
    {"stopping to restart", "gang lost", "stopping", "node_lost"},
    {"pausing", "gang lost", "pausing", "node_lost"},
    {"validating", "gang lost", "validating", "node_lost"},
};

RunMachine in_phase(const std::string& phase) {
  RunMachine machine;
  if (phase == "idle") return machine;
  if (phase == "reserving") {
    machine.on(Begin{});
    return machine;
  }
  if (phase == "starting") {
    machine.reserve();
    machine.start_processes();
    machine.on(Connected{0, 100, "host"});
    return machine;
  }
  if (phase == "stopping to restart") machine.rules.max_failures = 1;
  if (phase == "validating") {
    machine.state.kept = {{0, "checkpoint_0", {}, checkpoint::Status::kPendingValidation, Dict()}};
  }
  machine.run();
  if (phase == "running") return machine;
  if (phase == "draining") {
    machine.on(StopRequested{"why", false});
    machine.on(UploadsDrained{0});
    return machine;
  }
  if (phase == "validating") {
    for (int rank : {0, 1}) machine.on(FunctionReturned{rank, {}});
    machine.exit_all(kCleanExit);
    return machine;
  }
  if (phase == "pausing") {
    machine.rules.max_failures = -1;
    machine.rules.backoff_s = 1;
    for (int attempt : {0, 1}) {
      if (attempt > 0) machine.run_again();
      machine.on(raised(0));
      machine.on(TimerFired{Timer::kCause});
      machine.exit_all();
    }
    return machine;
  }
  if (phase == "failing") {
    machine.on(ConnectionLost{0, "closed"});
    return machine;
  }
  machine.on(raised(0));
  machine.on(TimerFired{Timer::kCause});
  if (phase == "finished") machine.exit_all();
  return machine;
}

const std::vector<std::string> kPhases = {
    "idle",    "reserving",  "starting", "running", "failing", "draining", "stopping to finish", "stopping to restart",
    "pausing", "validating", "finished"};

const std::vector<std::pair<std::string, Event>> kEvents = {
    {"begin", Begin{}},
    {"gang reserved", GangReserved{std::vector<engine::Slot>(2)}},
    {"reservation failed", ReservationFailed{"no room"}},
    {"process started", ProcessStarted{1, 101, false}},
    {"process start failed", ProcessStartFailed{1, "no such file"}},
    {"process exited", ProcessExited{1, kBadExit}},
    {"connected", Connected{1, 101, "host"}},
    {"connection lost", ConnectionLost{1, "closed"}},
    {"entered", FunctionEntered{1}},
    {"reported", Reported{1, 0, {{"loss", 1}}, std::nullopt}},
    {"uploaded", Uploaded{1, 0, std::nullopt}},
    {"upload failed", Uploaded{1, 0, "disk full"}},
    {"commit ended", CommitEnded{ready_of(0), {}, std::nullopt}},
    {"commit failed", CommitEnded{ready_of(0), {}, "disk full"}},
    {"validation ended", ValidationEnded{"checkpoint_0", checkpoint::Status::kValidated, {}, ""}},
    {"drained", UploadsDrained{1}},
    {"returned", FunctionReturned{1, {}}},
    {"failed", raised(1)},
    {"stop", StopRequested{"why", false}},
    {"stop hard", StopRequested{"why", true}},
    {"start timer", TimerFired{Timer::kStart}},
    {"cause timer", TimerFired{Timer::kCause}},
    {"stop timer", TimerFired{Timer::kStop}},
    {"abort timer", TimerFired{Timer::kAbort}},
    {"silence timer", TimerFired{Timer::kSilence}},
    {"pause timer", TimerFired{Timer::kPause}},
    {"resize timer", TimerFired{Timer::kResize}},
    {"preempt timer", TimerFired{Timer::kPreempt}},
    {"gang reclaimed", GangReclaimed{0, "spot", std::nullopt}},
    {"gang lost", GangLost{0, "node b: no heartbeat for 2.5 s"}},
    {"room grew", RoomGrew{}},
    {"aborted", CollectivesAborted{1}},
    {"became ready", BecameReady{1}},
    {"preemption", PreemptionAnnounced{{1}, 5.0, "spot"}},
    {"hang", HangNoticed{1, "rank 1 is behind", "stacks.txt"}},
    {"stacks", StacksTaken{}},
    {"deadlock", DeadlockFound{{{0, {.keys = {"a"}}}, {1, {.keys = {"b"}}}}}},
    {"storage settled", StorageSettled{0}},
    {"checkpoint stored", CheckpointStored{0, "checkpoint_0"}},
    {"checkpoint lost", CheckpointLost{0, "checkpoint_0", "its nodes are lost"}},
};

// Events of ranks cannot occur before there is a gang.
const std::set<std::string> kNeedGang = {"process started", "process start failed",
                                         "process exited",  "connected",
                                         "connection lost", "upload failed",
                                         "returned",        "failed",
                                         "drained",         "aborted",
                                         "became ready"};

// A commit starts while the function runs, and must complete before the next attempt or the end of the run.
bool may_commit(const RunState& state) {
  switch (state.phase) {
    case Phase::kRunning:
    case Phase::kFailing:
    case Phase::kDraining:
    case Phase::kStopping: return true;
    default: return false;
  }
}

}  // namespace

TEST_CASE("every phase with every event") {
  std::set<std::size_t> kinds;
  for (const auto& [name, event] : kEvents) kinds.insert(event.index());
  REQUIRE(kinds.size() == std::variant_size_v<Event>);

  std::map<std::pair<std::string, std::string>, Row> rows;
  for (const auto& row : kRows) rows.emplace(std::pair(row.phase, row.event), row);
  REQUIRE(rows.size() == kRows.size());
  std::size_t used = 0;
  for (const auto& phase : kPhases) {
    for (const auto& [name, event] : kEvents) {
      CAPTURE(phase);
      CAPTURE(name);
      RunMachine machine = in_phase(phase);
      REQUIRE(phase.starts_with(to_string(machine.state.phase)));
      if ((phase == "idle" || phase == "reserving") && kNeedGang.contains(name)) {
        CHECK_THROWS_AS(machine.on(event), base::BrokenInvariant);
        continue;
      }
      if (std::holds_alternative<CommitEnded>(event)) {
        if (!may_commit(machine.state)) continue;
        machine.state.commits_in_flight = 1;
      }
      auto row = rows.find({phase, name});
      const RunState before = machine.state;
      const std::string actions = machine.on(event);
      if (row == rows.end()) {
        CHECK(actions == "");
        CHECK(machine.state.phase == before.phase);
        CHECK(machine.state.outcome == before.outcome);
        continue;
      }
      ++used;
      std::string expected = row->second.actions;
      if (expected.ends_with(", ")) expected += kKill;
      CHECK(actions == expected);
      CHECK(to_string(machine.state.phase) == std::string(row->second.then));
    }
  }
  CHECK(used == rows.size());
}

TEST_CASE("workers start when the storage is settled, and not before") {
  constexpr const char* kBeginBoth = "disarm start, begin 0, begin 1, training_started";
  RunMachine machine;
  machine.settles = false;
  machine.reserve();
  machine.start_processes();
  SUBCASE("the storage takes longer than the workers") {
    machine.connect();
    CHECK(machine.state.phase == Phase::kStarting);
    SUBCASE("it is settled") { CHECK(machine.on(StorageSettled{0}) == kBeginBoth); }
    SUBCASE("it could not be settled: the run warns and continues") {
      CHECK(machine.on(StorageSettled{0, "no such bucket"}) == std::string("warning, ") + kBeginBoth);
      CHECK(machine.recorded("warning")["message"] == Value("no such bucket"));
    }
    SUBCASE("the answer for another attempt is ignored") {
      CHECK(machine.on(StorageSettled{1}) == "");
      CHECK(machine.state.phase == Phase::kStarting);
    }
    SUBCASE("every rank has connected: the wait continues, with a warning") {
      CHECK(machine.on(TimerFired{Timer::kStart}) == "warning, arm start 120");
      CHECK(machine.state.phase == Phase::kStarting);
      CHECK(machine.on(StorageSettled{0}) == kBeginBoth);
    }
    SUBCASE("a worker that is lost during the wait fails the attempt, and the next one waits for its own answer") {
      machine.rules.max_failures = 1;
      machine.on(ProcessExited{1, kKilled});
      machine.on(ConnectionLost{1, "closed"});
      machine.on(TimerFired{Timer::kCause});
      machine.on(ProcessExited{0, kKilled});
      REQUIRE(machine.state.attempt == 1);
      machine.run_again();
      CHECK(machine.on(StorageSettled{0}) == "");
      CHECK(machine.on(StorageSettled{1}) == kBeginBoth);
    }
  }
  SUBCASE("the workers take longer") {
    CHECK(machine.on(StorageSettled{0}) == "");
    machine.on(Connected{0, 100, "host"});
    CHECK(machine.on(Connected{1, 101, "host"}) == std::string("worker_connected, ") + kBeginBoth);
  }
}

TEST_CASE("a run that has ended does not change") {
  for (const auto& [name, event] : kEvents) {
    CAPTURE(name);
    RunMachine machine = in_phase("finished");
    const RunState before = machine.state;
    CHECK(machine.on(event) == "");
    CHECK(machine.state == before);
  }
}

TEST_CASE("every phase ends after any two events") {
  for (const auto& phase : kPhases) {
    for (const auto& [first, one] : kEvents) {
      for (const auto& [second, two] : kEvents) {
        CAPTURE(phase);
        CAPTURE(first);
        CAPTURE(second);
        RunMachine machine = in_phase(phase);
        if (may_commit(machine.state)) machine.state.commits_in_flight = 1;
        for (const auto& event : {one, two}) {
          // The controller rejects reports out of order.
          const auto* report = std::get_if<Reported>(&event);
          const bool out_of_turn =
              report && machine.state.workers.size() > 1 && machine.state.commits.next_report(1) != 0;
          const bool no_commit = std::holds_alternative<CommitEnded>(event) && machine.state.commits_in_flight == 0;
          if (out_of_turn || no_commit) continue;
          const bool of_a_rank = (event.index() >= 3 && event.index() <= 15) ||
                                 std::holds_alternative<CollectivesAborted>(event) ||
                                 std::holds_alternative<BecameReady>(event);
          if (machine.state.workers.empty() && of_a_rank) continue;
          machine.on(event);
        }
        // A hard stop, and the engine's events after the processes are killed, end it.
        machine.on(StopRequested{"enough", true});
        if (!machine.state.workers.empty()) machine.exit_all();
        if (machine.state.commits_in_flight > 0) {
          CHECK(machine.state.phase == Phase::kStopping);
          machine.on(CommitEnded{ready_of(0), {}, std::nullopt});
        }
        CHECK(machine.state.phase == Phase::kFinished);
        CHECK(machine.state.outcome != Outcome::kNone);
        CHECK(machine.count("run_finished") == 1);
        CHECK(std::holds_alternative<Finish>(machine.all.back()));
      }
    }
  }
}

TEST_CASE("phases and outcomes have names") {
  std::set<std::string> names;
  for (auto phase : {Phase::kIdle, Phase::kReserving, Phase::kStarting, Phase::kRunning, Phase::kFailing,
                     Phase::kDraining, Phase::kStopping, Phase::kValidating, Phase::kFinished}) {
    names.insert(to_string(phase));
  }
  CHECK(names.size() == 9);
  for (auto phase : {WorkerPhase::kAbsent, WorkerPhase::kStarted, WorkerPhase::kConnected, WorkerPhase::kRunning,
                     WorkerPhase::kDone, WorkerPhase::kFailed}) {
    CHECK(std::string(to_string(phase)) != "?");
  }
  for (auto outcome : {Outcome::kNone, Outcome::kFinished, Outcome::kFailed, Outcome::kStopped}) {
    CHECK(std::string(to_string(outcome)) != "?");
  }
}

}  // namespace decide_test
