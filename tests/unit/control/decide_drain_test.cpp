#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

namespace decide_drain_test {

// A graceful stop: pending uploads finish first.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

constexpr const char* kKill = "kill 0 5, kill 1 5, disarm start, disarm cause, arm stop 5";

RunMachine draining() {
  RunMachine machine;
  machine.rules.max_failures = 1;  // a stop is not a failure
  machine.run();
  for (int rank : {0, 1}) machine.on(Reported{rank, 0, {}, "checkpoint_0"});
  machine.on(Uploaded{0, 0, std::nullopt});
  CHECK(machine.on(StopRequested{"enough", false}) == "stop_requested, ask to stop 0, ask to stop 1");
  return machine;
}

}  // namespace

TEST_CASE("uploads in flight at a stop are committed") {
  RunMachine machine = draining();
  CHECK(machine.on(UploadsDrained{0}) == "");
  CHECK(machine.on(Uploaded{1, 0, std::nullopt}) == "commit checkpoint_0");
  CHECK(machine.on(UploadsDrained{1}) == "");
  CHECK(machine.commit_ended() == std::string("checkpoint_committed, tell 0, ") + kKill);
  CHECK(machine.exit_all() == "disarm stop, release, run_finished, finish");
  CHECK(machine.state.outcome == Outcome::kStopped);
  CHECK(machine.state.error == "stopped: enough");
  CHECK(machine.state.kept.size() == 1);
}

TEST_CASE("a rank that is lost, has failed or is done is not waited for") {
  struct Case {
    const char* what;
    Event event;
    const char* actions;
  };
  for (const Case& row : {Case{"gone", ConnectionLost{1, "closed"}, ""}, Case{"failed", raised(1), ""},
                          Case{"returned", FunctionReturned{1, {}}, "worker_finished, "}}) {
    CAPTURE(row.what);
    RunMachine machine = draining();
    CHECK(machine.on(UploadsDrained{0}) == "");
    CHECK(machine.on(row.event) == row.actions + std::string(kKill));
    machine.exit_all();
    CHECK(machine.state.outcome == Outcome::kStopped);
    CHECK(machine.recorded("run_finished")["attempts"] == Value(1));
  }
}

TEST_CASE("a rank that was already lost is not asked") {
  RunMachine machine;
  machine.run();
  machine.on(FunctionReturned{1, {}});
  machine.on(ConnectionLost{1, "closed"});
  machine.on(ProcessExited{1, kCleanExit});
  CHECK(machine.on(StopRequested{"enough", false}) == "stop_requested, ask to stop 0");
  CHECK(machine.on(UploadsDrained{0}) == "kill 0 5, disarm start, disarm cause, arm stop 5");
}

TEST_CASE("every rank has returned, and only a commit is pending") {
  RunMachine machine(1);
  machine.run();
  machine.on(Reported{0, 0, {}, "checkpoint_0"});
  machine.on(Uploaded{0, 0, std::nullopt});
  machine.on(FunctionReturned{0, {}});
  CHECK(machine.on(StopRequested{"enough", false}) == "stop_requested, ask to stop 0");
  CHECK(machine.commit_ended() == "checkpoint_committed, tell 0, kill 0 5, disarm start, disarm cause, arm stop 5");
}

TEST_CASE("a hard stop does not wait for uploads, only for the manifest that is being written") {
  RunMachine machine = draining();
  machine.on(Uploaded{1, 0, std::nullopt});
  CHECK(machine.on(StopRequested{"now", true}) == "kill 0 0, kill 1 0, disarm start, disarm cause, arm stop 5");
  CHECK(machine.exit_all() == "");
  CHECK(machine.commit_ended() == "checkpoint_committed, tell 0, disarm stop, release, run_finished, finish");
  CHECK(machine.state.error == "stopped: enough");
}

TEST_CASE("a run that has lost a rank does not drain") {
  RunMachine machine;
  machine.run();
  machine.on(raised(0));
  CHECK(machine.on(StopRequested{"enough", false}) == std::string("stop_requested, ") + kKill);
}

}  // namespace decide_drain_test
