#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

namespace decide_scenarios_test {

// Whole runs, event by event.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

constexpr const char* kAgain = "disarm stop, attempt_started, reset, start 0, start 1, settle, arm start 120";
constexpr const char* kOver = "disarm stop, release, run_finished, finish";

}  // namespace

TEST_CASE("a run from begin to end") {
  RunMachine machine;
  CHECK(machine.on(Begin{}) == "reserve");
  CHECK(machine.on(GangReserved{{{"n", "a", {}, {}}, {"n", "b", {}, {}}}}) ==
        "attempt_started, reset, start 0, start 1, settle, arm start 120");
  CHECK(machine.on(ProcessStarted{1, 101, true}) == "worker_started");
  CHECK(machine.recorded("worker_started") ==
        Dict{{"attempt", 0}, {"rank", 1}, {"pid", 101}, {"host", "b"}, {"forked", true}});
  CHECK(machine.on(ProcessStarted{0, 100, false}) == "worker_started");
  CHECK(machine.on(Connected{1, 101, "b"}) == "worker_connected");
  CHECK(machine.on(Connected{0, 100, "a"}) == "worker_connected, disarm start, begin 0, begin 1, training_started");
  CHECK(machine.on(FunctionEntered{0}) == "function_entered");
  CHECK(machine.on(Reported{0, 0, {{"loss", 0.5}}, std::nullopt}) == "report");
  CHECK(machine.recorded("report") ==
        Dict{{"attempt", 0}, {"rank", 0}, {"index", 0}, {"metrics", Dict{{"loss", 0.5}}}});
  CHECK(machine.on(FunctionReturned{1, {"ignored"}}) == "worker_finished");
  // Rank 1 usually waits for the goodbye, but does not have to.
  CHECK(machine.on(ConnectionLost{1, "closed"}) == "");
  CHECK(machine.on(ProcessExited{1, kKilled}) == "");
  CHECK(machine.on(FunctionReturned{0, {"value"}}) ==
        "worker_finished, goodbye 0, goodbye 1, disarm start, disarm cause, arm stop 5");
  CHECK(machine.on(ConnectionLost{0, "closed"}) == "");
  CHECK(machine.on(ProcessExited{0, kCleanExit}) == kOver);
  CHECK(machine.state.outcome == Outcome::kFinished);
  CHECK(machine.state.return_value == ReturnValue{"value"});
  CHECK(machine.state.error == "");
  CHECK(machine.recorded("run_finished") ==
        Dict{{"attempt", 0}, {"outcome", "finished"}, {"attempts", 1}, {"reports", 1}, {"return_value", "value"}});
}

TEST_CASE("a value that only Python can read is stored in a separate file") {
  RunMachine machine(1);
  machine.run();
  machine.on(FunctionReturned{0, {Bytes{"pickle"}, true}});
  machine.exit_all(kCleanExit);
  CHECK(machine.state.return_value == ReturnValue{Bytes{"pickle"}, true});
  CHECK(machine.recorded("run_finished")["return_value_pickled"] == Value(true));
  CHECK_FALSE(machine.recorded("run_finished").contains("return_value"));
}

TEST_CASE("there is no room") {
  RunMachine machine;
  machine.on(Begin{});
  CHECK(machine.on(ReservationFailed{"needs 4 GPUs, there are 2"}) == "run_finished, finish");
  CHECK(machine.state.outcome == Outcome::kFailed);
  CHECK(machine.state.error == "needs 4 GPUs, there are 2");
}

TEST_CASE("a worker raises") {
  RunMachine machine;
  machine.run();
  CHECK(machine.on(raised(1)) == "arm cause 0.02");
  // The exit of its process is not a second failure.
  CHECK(machine.on(ConnectionLost{1, "closed"}) == "");
  CHECK(machine.on(ProcessExited{1, kBadExit}) == "");
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 1 exception, attempt_failed, kill 0 5, disarm start, disarm cause, arm stop 5");
  CHECK(machine.on(ProcessExited{0, kKilled}) == kOver);
  CHECK(machine.state.outcome == Outcome::kFailed);
  CHECK(machine.state.error == "rank 1 (pid 101, host host) failed: ValueError: boom");
  REQUIRE(machine.state.failures.size() == 1);
  CHECK(machine.state.failures[0].traceback == "Traceback");
  CHECK(machine.state.failures[0].exception == Bytes{"pickle"});
  CHECK(machine.recorded("attempt_failed") == Dict{{"attempt", 0},
                                                   {"rank", 1},
                                                   {"message", machine.state.error},
                                                   {"next", "fail"},
                                                   {"budget", "max_failures"},
                                                   {"failures", 1},
                                                   {"max_failures", 0}});
  CHECK(machine.recorded("run_finished")["error"] == Value(machine.state.error));
}

TEST_CASE("a worker is killed: exit and lost connection arrive in any order, or one of them late") {
  struct Case {
    const char* what;
    std::vector<Event> events;
    const char* cause;
  };
  for (const Case& row : {
           Case{"exit first", {ProcessExited{1, kKilled}, ConnectionLost{1, "closed"}}, "signal"},
           Case{"loss first", {ConnectionLost{1, "closed"}, ProcessExited{1, kKilled}}, "signal"},
           Case{"exit only", {ProcessExited{1, kKilled}}, "signal"},
           Case{"loss only", {ConnectionLost{1, "no heartbeat for 1.8 s"}}, "lost"},
           Case{"exit code", {ProcessExited{1, kBadExit}, ConnectionLost{1, "closed"}}, "exit"},
           Case{"left early", {ProcessExited{1, kCleanExit}, ConnectionLost{1, "closed"}}, "exit"},
       }) {
    CAPTURE(row.what);
    RunMachine machine;
    machine.run();
    for (const auto& event : row.events) machine.on(event);
    CHECK(machine.state.phase == Phase::kFailing);
    machine.on(TimerFired{Timer::kCause});
    REQUIRE(machine.state.failures.size() == 1);
    CHECK(machine.state.failures[0].cause == row.cause);
    CHECK(machine.state.failures[0].rank == 1);
    CHECK(machine.state.phase == Phase::kStopping);
  }
}

TEST_CASE("messages of a dead worker") {
  RunMachine machine;
  machine.run();
  SUBCASE("its error was in flight when its process ended") {
    CHECK(machine.on(ProcessExited{1, kBadExit}) == "arm cause 0.5");
    CHECK(machine.on(raised(1)) == "arm cause 0.02");
    CHECK(machine.on(ConnectionLost{1, "closed"}) == "");
    machine.on(TimerFired{Timer::kCause});
    REQUIRE(machine.state.failures.size() == 1);
    CHECK(machine.state.failures[0].cause == "exception");
  }
  SUBCASE("it had returned: not a failure") {
    CHECK(machine.on(ProcessExited{1, kCleanExit}) == "arm cause 0.5");
    CHECK(machine.on(FunctionReturned{1, {}}) == "worker_finished");
    CHECK(machine.on(ConnectionLost{1, "closed"}) == "");
    CHECK(machine.on(TimerFired{Timer::kCause}) == "");
    CHECK(machine.state.phase == Phase::kRunning);
    machine.on(FunctionReturned{0, {}});
    machine.on(ProcessExited{0, kCleanExit});
    CHECK(machine.state.outcome == Outcome::kFinished);
  }
  SUBCASE("it had returned last") {
    machine.on(FunctionReturned{0, {}});
    machine.on(ProcessExited{1, kCleanExit});
    CHECK(machine.on(FunctionReturned{1, {}}) ==
          "worker_finished, goodbye 0, goodbye 1, disarm start, disarm cause, arm stop 5");
    CHECK(machine.on(TimerFired{Timer::kCause}) == "");
    CHECK(machine.state.outcome == Outcome::kFinished);
  }
}

TEST_CASE("the cause is the process that died, even if many ranks report a lost peer first") {
  RunMachine machine(4);
  machine.run();
  CHECK(machine.on(peer_gone(0)) == "arm cause 0.5");
  CHECK(machine.on(peer_gone(3)) == "");
  CHECK(machine.on(ConnectionLost{2, "closed"}) == "");
  CHECK(machine.on(ProcessExited{2, kKilled}) == "arm cause 0.02");
  CHECK(machine.on(peer_gone(1)) == "");
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 2 signal, failure 0 exception*, failure 3 exception*, failure 1 exception*, attempt_failed, "
        "goodbye 0, goodbye 1, goodbye 3, kill 0 5, kill 1 5, kill 3 5, disarm start, disarm cause, arm stop 5");
  CHECK(machine.state.error.find("rank 2 (pid 102, host host) failed: WorkerKilled") == 0);
}

TEST_CASE("without a better explanation the first failure is the cause") {
  RunMachine machine;
  machine.run();
  machine.on(peer_gone(1));
  machine.on(peer_gone(0));
  CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 1 exception, failure 0 exception*, attempt_failed"));
}

TEST_CASE("two ranks fail at the same time") {
  RunMachine machine;
  machine.run();
  CHECK(machine.on(raised(1, "mine")) == "arm cause 0.02");
  CHECK(machine.on(raised(0, "also mine")) == "");
  CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 1 exception, failure 0 exception, attempt_failed"));
  CHECK(machine.state.failures.size() == 2);
  // Failures after the decision are not recorded.
  CHECK(machine.on(raised(0, "late")) == "");
  CHECK(machine.state.failures.size() == 2);
}

TEST_CASE("a gang that cannot be started") {
  RunMachine machine;
  machine.rules.max_failures = 5;  // does not apply here
  machine.reserve();
  CHECK(machine.on(ProcessStarted{0, 100, true}) == "worker_started");
  CHECK(machine.on(ProcessStartFailed{1, "exec /x: No such file or directory"}) == "arm cause 0.02");
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 1 start, attempt_failed, kill 0 5, disarm start, disarm cause, arm stop 5");
  CHECK(machine.exit_all() == "");
  CHECK(machine.state.phase == Phase::kFinished);
  CHECK(machine.state.error.find("rank 1 could not be started: exec /x: No such file or directory") !=
        std::string::npos);
  CHECK(machine.state.failures_used == 0);
}

TEST_CASE("a worker that is stopped before it started does not count as a failed start") {
  RunMachine machine(3);
  machine.rules.start_limit = 2;
  machine.reserve();
  for (std::int64_t used = 1; used <= 2; ++used) {
    machine.on(ProcessStarted{0, 100, true});
    machine.on(ProcessExited{0, kBadExit});
    // Ranks 1 and 2 still wait for the warm process.
    CHECK(machine.on(TimerFired{Timer::kCause}).find("kill 1 0, kill 2 0") != std::string::npos);
    CHECK(machine.on(ProcessStartFailed{1, "was stopped before it started"}) == "");
    CHECK(machine.on(ProcessStartFailed{2, "was stopped before it started"}).find("start 0, start 1, start 2") !=
          std::string::npos);
    CHECK(machine.state.starts_used == used);
  }
  SUBCASE("an elastic run keeps the seat") {
    CHECK(machine.state.workers.size() == 3);
    CHECK_FALSE(machine.state.gangs.at(0).leaving);
  }
}

TEST_CASE("a worker that dies before it connects uses the budget of starts") {
  RunMachine machine;
  machine.rules.start_limit = 2;
  machine.reserve();
  for (int attempt = 0; attempt < 3; ++attempt) {
    CHECK(machine.state.attempt == attempt);
    CHECK(machine.state.phase == Phase::kStarting);
    machine.start_processes();
    CHECK(machine.on(ProcessExited{1, kBadExit}) == "arm cause 0.02");
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.recorded("attempt_failed")["next"] == Value(attempt < 2 ? "restart" : "fail"));
    CHECK(machine.recorded("attempt_failed")["failures"] == Value(attempt + 1));
    CHECK(machine.recorded("attempt_failed")["max_failures"] == Value(2));
    machine.on(ProcessExited{0, kKilled});
  }
  CHECK(machine.state.phase == Phase::kFinished);
  CHECK(machine.recorded("run_finished")["attempts"] == Value(3));
}

TEST_CASE("a start that takes too long reports the missing ranks") {
  RunMachine machine(4);
  machine.rules.start_timeout_s = 7.5;
  machine.rules.start_limit = 1;
  machine.reserve();
  machine.start_processes();
  machine.on(Connected{2, 102, "host"});
  CHECK(machine.on(TimerFired{Timer::kStart}) == "arm cause 0.02");
  CHECK(machine.state.failures[0].message == "rank 0-1,3 did not connect within 7.5 s (start_timeout_s)");
  machine.on(TimerFired{Timer::kCause});
  CHECK(machine.exit_all().starts_with("disarm stop, attempt_started"));
  machine.run_again();
  CHECK(machine.state.phase == Phase::kRunning);
}

TEST_CASE("a failed gang is restarted as often as allowed") {
  struct Case {
    std::int64_t max_failures;
    int attempts;
  };
  for (const Case& row : {Case{0, 1}, Case{1, 2}, Case{3, 4}}) {
    CAPTURE(row.max_failures);
    RunMachine machine;
    machine.rules.max_failures = row.max_failures;
    machine.run();
    int attempts = 1;
    while (true) {
      machine.on(raised(0));
      const bool again = attempts < row.attempts;
      CHECK(machine.on(TimerFired{Timer::kCause}).find(again ? "kill 0 0, kill 1 0" : "kill 0 5, kill 1 5") !=
            std::string::npos);
      const std::string last = machine.exit_all();
      CHECK(last == (again ? kAgain : kOver));
      if (!again) break;
      ++attempts;
      CHECK(machine.state.failures.empty());
      machine.run_again();
    }
    CHECK(machine.state.outcome == Outcome::kFailed);
    CHECK(machine.recorded("run_finished")["attempts"] == Value(row.attempts));
  }
}

TEST_CASE("unlimited restarts") {
  RunMachine machine;
  machine.rules.max_failures = -1;
  machine.run();
  for (int i = 0; i < 50; ++i) {
    machine.on(raised(1));
    machine.on(TimerFired{Timer::kCause});
    REQUIRE(machine.exit_all() == kAgain);
    machine.run_again();
  }
  for (int rank : {0, 1}) machine.on(FunctionReturned{rank, {}});
  machine.exit_all(kCleanExit);
  CHECK(machine.state.outcome == Outcome::kFinished);
  CHECK(machine.recorded("run_finished")["attempts"] == Value(51));
}

TEST_CASE("a resumed run continues counting its attempts") {
  RunMachine machine;
  machine.state.first_attempt = machine.state.attempt = 7;
  machine.rules.max_failures = 1;
  machine.run();
  CHECK(machine.recorded("attempt_started")["attempt"] == Value(7));
  machine.on(raised(0));
  machine.on(TimerFired{Timer::kCause});
  machine.exit_all();
  CHECK(machine.recorded("attempt_started")["attempt"] == Value(8));
  machine.on(StopRequested{"enough", true});
  machine.exit_all();
  CHECK(machine.recorded("run_finished")["attempts"] == Value(2));
}

TEST_CASE("stopping") {
  RunMachine machine;
  machine.run();
  CHECK(machine.on(StopRequested{"ctrl-c", false}) == "stop_requested, ask to stop 0, ask to stop 1");
  CHECK(machine.on(UploadsDrained{1}) == "");
  CHECK(machine.on(UploadsDrained{0}) == "kill 0 5, kill 1 5, disarm start, disarm cause, arm stop 5");
  // A second request changes nothing, a hard one does.
  CHECK(machine.on(StopRequested{"ctrl-c", false}) == "");
  CHECK(machine.on(raised(0)) == "");
  CHECK(machine.on(StopRequested{"ctrl-c", true}) == "kill 0 0, kill 1 0, disarm start, disarm cause, arm stop 5");
  CHECK(machine.on(ProcessExited{1, kKilled}) == "");
  CHECK(machine.on(TimerFired{Timer::kStop}) == "kill 0 0");
  CHECK(machine.on(ProcessExited{0, kKilled}) == kOver);
  CHECK(machine.state.outcome == Outcome::kStopped);
  CHECK(machine.state.error == "stopped: ctrl-c");
  CHECK(machine.count("stop_requested") == 1);
}

TEST_CASE("a stop overrides a restart but not an end") {
  RunMachine machine;
  machine.rules.max_failures = 1;
  machine.run();
  SUBCASE("while the gang of the failed attempt ends") {
    machine.on(raised(0));
    machine.on(TimerFired{Timer::kCause});
    machine.on(StopRequested{"why", false});
    CHECK(machine.exit_all() == kOver);
    CHECK(machine.state.outcome == Outcome::kStopped);
  }
  SUBCASE("while the cause is being determined") {
    machine.on(raised(0));
    machine.on(StopRequested{"why", false});
    CHECK(machine.on(TimerFired{Timer::kCause}) == "");
    CHECK(machine.exit_all() == kOver);
    CHECK(machine.state.outcome == Outcome::kStopped);
  }
  SUBCASE("before the engine has answered") {
    machine.on(raised(0));
    machine.on(TimerFired{Timer::kCause});
    REQUIRE(machine.exit_all() == kAgain);
    CHECK(machine.on(StopRequested{"why", true}).find("kill 0 0, kill 1 0") != std::string::npos);
    CHECK(machine.on(ProcessStarted{0, 200, true}) == "worker_started");
    CHECK(machine.on(ProcessStartFailed{1, "no"}) == "");
    CHECK(machine.on(ProcessExited{0, kKilled}) == kOver);
    CHECK(machine.state.outcome == Outcome::kStopped);
  }
  SUBCASE("after the last return") {
    for (int rank : {0, 1}) machine.on(FunctionReturned{rank, {}});
    CHECK(machine.on(StopRequested{"why", false}) == "");
    CHECK(machine.on(StopRequested{"why", true}).find("kill 0 0, kill 1 0") == 0);
    CHECK(machine.exit_all() == kOver);
    CHECK(machine.state.outcome == Outcome::kFinished);
  }
}

TEST_CASE("workers that stay after the goodbye are killed") {
  RunMachine machine;
  machine.run();
  for (int rank : {0, 1}) machine.on(FunctionReturned{rank, {}});
  machine.on(ProcessExited{0, kCleanExit});
  CHECK(machine.on(TimerFired{Timer::kStop}) == "kill 1 0");
  CHECK(machine.on(ProcessExited{1, kKilled}) == kOver);
  CHECK(machine.state.outcome == Outcome::kFinished);
}

TEST_CASE("a function that reports twice that it returned counts once") {
  RunMachine machine;
  machine.run();
  CHECK(machine.on(FunctionReturned{1, {}}) == "worker_finished");
  CHECK(machine.on(FunctionReturned{1, {}}) == "");
}

}  // namespace decide_scenarios_test
