#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

// Which checkpoints are committed, and what happens to those that cannot be.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

void checkpoint(RunMachine& machine, int rank, std::int64_t index) {
  machine.on(Reported{rank, index, {{"index", index}}, "checkpoint_" + std::to_string(index)});
}

}  // namespace

TEST_CASE("checkpoints are committed in order, when all are there") {
  RunMachine machine;
  machine.run();
  checkpoint(machine, 0, 0);
  checkpoint(machine, 1, 0);
  CHECK(machine.on(Uploaded{1, 0, std::nullopt}) == "");
  checkpoint(machine, 0, 1);
  checkpoint(machine, 1, 1);
  CHECK(machine.on(Uploaded{0, 1, std::nullopt}) == "");
  CHECK(machine.on(Uploaded{1, 1, std::nullopt}) == "");
  CHECK(machine.on(Uploaded{0, 0, std::nullopt}) == "commit checkpoint_0, commit checkpoint_1");
  // A rank that returns makes room for the others.
  checkpoint(machine, 0, 2);
  CHECK(machine.on(Uploaded{0, 2, std::nullopt}) == "");
  CHECK(machine.on(FunctionReturned{1, std::nullopt}) == "worker_finished, commit checkpoint_2");
  checkpoint(machine, 0, 3);
  CHECK(machine.on(Uploaded{0, 3, std::nullopt}) == "commit checkpoint_3");
}

TEST_CASE("reports are numbered from the newest checkpoint after a restart") {
  RunMachine machine;
  machine.rules.max_failures = 1;
  machine.state.commits = CommitBook(0, 3);
  machine.run();
  for (int rank : {0, 1}) {
    checkpoint(machine, rank, 3);
    machine.on(Uploaded{rank, 3, std::nullopt});
    machine.on(Reported{rank, 4, {{"step", 4}}, std::nullopt});
  }
  checkpoint(machine, 0, 5);
  machine.on(raised(1));
  machine.on(TimerFired{Timer::kCause});
  machine.exit_all();
  for (int rank : {0, 1}) CHECK(machine.state.commits.next_report(rank) == 4);
  machine.run_again();
  CHECK(machine.on(Reported{0, 4, {{"step", 4}}, std::nullopt}) == "report");
  CHECK(machine.recorded("report")["attempt"] == Value(1));
  CHECK(machine.state.reports == 6);
}

TEST_CASE("a rank that never reports, and wakes up too late") {
  RunMachine machine;
  machine.run();
  checkpoint(machine, 0, 0);
  machine.on(Uploaded{0, 0, std::nullopt});
  CHECK(machine.on(Reported{0, 1, {}, "checkpoint_1"}) == "report, arm silence 10");
  CHECK(machine.on(Reported{0, 2, {}, "checkpoint_2"}) == "report");
  CHECK(machine.on(TimerFired{Timer::kSilence}) == "warning, commit checkpoint_0");
  CHECK(machine.recorded("warning")["message"] ==
        Value("checkpoint_0 is committed without rank 1, which has never reported"));
  SUBCASE("with files: they would be missing in what is committed") {
    CHECK(machine.on(Reported{1, 0, {}, "checkpoint_0"}) == "arm cause 0.02");
    CHECK(machine.state.failures[0].message == "checkpoint_0 was committed without rank 1: its part came too late");
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.state.outcome == Outcome::kFailed);
  }
  SUBCASE("without files: no harm is done") {
    CHECK(machine.on(Reported{1, 0, {}, std::nullopt}) == "report");
    CHECK(machine.state.phase == Phase::kRunning);
  }
}

TEST_CASE("a checkpoint that could not be stored") {
  RunMachine machine;
  machine.run();
  checkpoint(machine, 0, 0);
  SUBCASE("is a failure") {
    CHECK(machine.on(Uploaded{0, 0, "disk full"}) == "arm cause 0.02");
    CHECK(machine.state.failures[0].message == "the checkpoint of report 0 could not be stored: disk full");
    // The error that the function got from it follows.
    CHECK(machine.on(raised(0, "checkpoint_0 could not be stored")) == "");
    CHECK(
        machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 exception, failure 0 exception, attempt_failed"));
  }
  SUBCASE("is one also where every function returns before the verdict") {
    machine.on(Uploaded{0, 0, "disk full"});
    CHECK(machine.on(FunctionReturned{0, std::nullopt}) == "worker_finished");
    CHECK(machine.on(FunctionReturned{1, std::nullopt}) == "worker_finished");
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.state.outcome == Outcome::kFailed);
  }
  SUBCASE("is one also where it is the last act of the run") {
    machine.on(Uploaded{0, 0, std::nullopt});
    machine.on(FunctionReturned{0, std::nullopt});
    CHECK(machine.on(FunctionReturned{1, std::nullopt}).find("commit checkpoint_0, goodbye 0") != std::string::npos);
    // The manifest could not be written.
    CHECK(machine.on(Uploaded{0, 0, "disk full"}) == "failure 0 exception");
    CHECK(machine.exit_all(kCleanExit).ends_with("run_finished, finish"));
    CHECK(machine.state.outcome == Outcome::kFailed);
    CHECK(machine.state.error.find("could not be stored: disk full") != std::string::npos);
  }
}

TEST_CASE("nothing is committed once the gang ends") {
  RunMachine machine;
  machine.run();
  checkpoint(machine, 0, 0);
  checkpoint(machine, 1, 0);
  machine.on(Uploaded{0, 0, std::nullopt});
  machine.on(raised(0));
  // While the cause is looked for, what is complete still counts.
  CHECK(machine.on(Uploaded{1, 0, std::nullopt}) == "commit checkpoint_0");
  checkpoint(machine, 0, 1);
  checkpoint(machine, 1, 1);
  machine.on(Uploaded{0, 1, std::nullopt});
  machine.on(TimerFired{Timer::kCause});
  CHECK(machine.on(Uploaded{1, 1, std::nullopt}) == "");
}
