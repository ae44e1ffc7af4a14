#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

namespace decide_nodes_test {

// Nodes of a cluster that are lost, or will be taken away.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

engine::Slot on(const std::string& node) { return {node, node, {}, {}}; }

ProcessExited lost(int rank) { return {rank, {}, {}, {}, {}, "node b is lost"}; }

// Two seats on node a, and one each on node b.
RunMachine elastic(int least) {
  RunMachine machine(4);
  machine.rules.min_workers = least;
  machine.rules.max_workers = 4;
  machine.rules.max_failures = 1;
  machine.on(Begin{});
  return machine;
}

}  // namespace

TEST_CASE("a run of fixed size waits for other room, with nothing reserved in the meantime") {
  RunMachine machine(2);
  machine.rules.max_failures = 1;
  machine.on(Begin{});
  machine.on(GangReserved{{on("a"), on("b")}});
  machine.start_processes();
  machine.connect();
  CHECK(machine.on(GangLost{0, "node b is lost"}) == "node_lost");
  CHECK(machine.on(GangLost{0, "node c is lost"}) == "");
  machine.on(ConnectionLost{1, "closed"});
  CHECK(machine.on(lost(1)) == "arm cause 0.02");
  // Rank 0 is not kept: its seat is released with the gang.
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 1 node_lost, attempt_failed, kill 0 0, disarm start, disarm cause, arm stop 5");
  CHECK(machine.on(ProcessExited{0, kKilled}) == "disarm stop, release, reserve");
  CHECK(machine.state.phase == Phase::kReserving);
  CHECK(machine.on(ConnectionLost{0, "closed"}) == "");
  CHECK(machine.on(GangReserved{{on("a"), on("c")}, 1}) ==
        "attempt_started, reset, start 0, start 1, settle, arm start 120");
  CHECK(machine.state.attempt == 1);
  machine.run_again();
  CHECK(machine.state.phase == Phase::kRunning);
}

TEST_CASE("without other room in time, the run fails with the engine's reason") {
  RunMachine machine(1);
  machine.rules.max_failures = 1;
  machine.run();
  machine.on(GangLost{0, "node b is lost"});
  machine.on(ConnectionLost{0, "closed"});
  machine.on(lost(0));
  CHECK(machine.on(TimerFired{Timer::kCause}).ends_with("disarm stop, release, reserve"));
  CHECK(machine.on(ReservationFailed{"no room within 60 s", 1}) == "run_finished, finish");
  CHECK(machine.state.error == "no room within 60 s");
}

TEST_CASE("optional seats on other nodes become the minimum") {
  RunMachine machine = elastic(2);
  machine.on(GangReserved{{on("a"), on("a")}});
  machine.on(GangReserved{{on("b")}, 1});
  machine.on(GangReserved{{on("b")}, 2});
  machine.start_processes();
  machine.connect();
  machine.on(GangLost{0, "node a is lost"});
  for (int rank : {0, 1}) {
    machine.on(ConnectionLost{rank, "closed"});
    machine.on(lost(rank));
  }
  machine.on(TimerFired{Timer::kCause});
  machine.on(ProcessExited{2, kKilled});
  CHECK(machine.on(ProcessExited{3, kKilled}) ==
        "disarm stop, release, attempt_started, reset, start 0, start 1, settle, arm start 120");
  CHECK_FALSE(machine.state.gangs.at(1).optional);
}

TEST_CASE("a lost optional seat is released, and the others continue") {
  RunMachine machine = elastic(2);
  machine.on(GangReserved{{on("a"), on("a")}});
  machine.on(GangReserved{{on("b")}, 1});
  machine.on(ReservationFailed{"no room", 2});
  for (int rank : {0, 1, 2}) machine.on(ProcessStarted{rank, machine.pid_of(rank), true});
  for (int rank : {0, 1, 2}) machine.on(Connected{rank, machine.pid_of(rank), "host"});
  machine.on(GangLost{1, "node b is lost"});
  machine.on(ConnectionLost{2, "closed"});
  machine.on(lost(2));
  machine.on(TimerFired{Timer::kCause});
  machine.on(ProcessExited{0, kKilled});
  CHECK(machine.on(ProcessExited{1, kKilled}) ==
        "disarm stop, release gang 1, attempt_started, reset, start 0, start 1, settle, arm start 120");
}

TEST_CASE("a node that is lost before the run starts is replaced at once") {
  RunMachine machine = elastic(2);
  machine.on(GangReserved{{on("a"), on("b")}});
  CHECK(machine.on(GangLost{0, "node b is lost"}) ==
        "node_lost, release, release gang 1, release gang 2, reserve, reserve gang 4, reserve gang 5");
}

TEST_CASE("workers of a node that will be taken away are told, and the next attempt uses other room") {
  RunMachine machine(2);
  machine.on(Begin{});
  machine.on(GangReserved{{on("a"), on("b")}});
  machine.start_processes();
  machine.connect();
  CHECK(machine.on(GangReclaimed{0, "maintenance", 30.0, "b"}) ==
        "preemption_announced, tell that rank 1 goes in 30, arm preempt 30");
  machine.on(TimerFired{Timer::kPreempt});
  machine.on(TimerFired{Timer::kCause});
  machine.on(ProcessExited{0, kKilled});
  CHECK(machine.on(ProcessExited{1, kKilled}) == "disarm stop, release, reserve");
}

TEST_CASE("if all workers are on nodes that will be taken away, the run moves to other nodes, if there may be some") {
  for (const bool elsewhere : {true, false}) {
    RunMachine machine(2);
    machine.on(Begin{});
    machine.on(GangReserved{{on("a"), on("a")}});
    machine.start_processes();
    machine.connect();
    CHECK(machine.on(GangReclaimed{0, "maintenance", 30.0, "a", elsewhere}) ==
          "preemption_announced, tell that rank 0-1 goes in 30, arm preempt 30");
    const std::string due = machine.on(TimerFired{Timer::kPreempt});
    CHECK((due.find("stop_requested") == std::string::npos) == elsewhere);
    if (!elsewhere) continue;
    machine.on(TimerFired{Timer::kCause});
    machine.on(ProcessExited{0, kKilled});
    CHECK(machine.on(ProcessExited{1, kKilled}) == "disarm stop, release, reserve");
  }
}

TEST_CASE("a process that cannot be started because its node is lost does not end the run") {
  RunMachine machine(1);
  machine.reserve();
  machine.on(ProcessStartFailed{0, "node b is lost", true});
  CHECK(machine.on(TimerFired{Timer::kCause}).ends_with("release, reserve"));
}

}  // namespace decide_nodes_test
