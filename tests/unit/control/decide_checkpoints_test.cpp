#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

namespace decide_checkpoints_test {

// Which checkpoints are committed and kept, and what happens to those that cannot be.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

std::string name_of(std::int64_t index) { return "checkpoint_" + std::to_string(index); }

void report(RunMachine& machine, int rank, std::int64_t index) {
  machine.on(Reported{rank, index, {{"index", index}}, name_of(index)});
}

// Every rank reports it, and everything is stored: the commit is in progress.
void store(RunMachine& machine, std::int64_t index, Metrics metrics = {}) {
  for (int rank = 0; rank < machine.rules.num_workers; ++rank) {
    machine.on(Reported{rank, index, metrics, name_of(index)});
    machine.on(Uploaded{rank, index, std::nullopt});
  }
}

std::vector<std::string> kept(const RunMachine& machine) {
  std::vector<std::string> names;
  for (const auto& each : machine.state.kept) names.push_back(each.name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a checkpoint that ranks report at different positions in their data is committed with one warning") {
  RunMachine machine;
  machine.run();
  const auto at_row = [](std::int64_t row) {
    return Dict{{"data/train", Dict{{"epoch", 0}, {"rows", row}, {"size", 100}}}};
  };
  // Rank 1 reports twice per step. Only rank 0 stores a checkpoint.
  for (std::int64_t index = 0; index < 4; ++index)
    machine.on(Reported{1, index, {}, {}, {}, at_row(index / 2 * 10 + 10)});
  for (std::int64_t index = 0; index < 4; ++index) {
    machine.on(Reported{0, index, {}, name_of(index), {}, at_row(index * 10 + 10)});
    machine.on(Uploaded{0, index, std::nullopt});
  }
  CHECK(machine.state.commits_in_flight == 4);
  CHECK(machine.count("warning") == 1);
  CHECK(
      machine.recorded("warning")["message"].as_string() ==
      "checkpoint_1: when they made this report, rank 0 was at row 20 of epoch 0 of dataset 'train' and rank 1 at row "
      "10 of epoch 0. A restart from it repeats rows or skips them: report on every rank, at the same point of each "
      "step");
}

TEST_CASE("checkpoints are committed in order, when all parts are stored") {
  RunMachine machine;
  machine.run();
  report(machine, 0, 0);
  report(machine, 1, 0);
  CHECK(machine.on(Uploaded{1, 0, std::nullopt}) == "");
  report(machine, 0, 1);
  report(machine, 1, 1);
  CHECK(machine.on(Uploaded{0, 1, std::nullopt}) == "");
  CHECK(machine.on(Uploaded{1, 1, std::nullopt}) == "");
  CHECK(machine.on(Uploaded{0, 0, std::nullopt}) == "commit checkpoint_0, commit checkpoint_1");
  CHECK(machine.state.commits_in_flight == 2);
  CHECK(machine.count("checkpoint_committed") == 0);
  CHECK(machine.commit_ended() == "checkpoint_committed, tell 0");
  CHECK(machine.recorded("checkpoint_committed") == Dict{{"attempt", 0},
                                                         {"index", 0},
                                                         {"name", "checkpoint_0"},
                                                         {"metrics", Dict{{"index", 0}}},
                                                         {"status", "COMMITTED"}});
  CHECK(machine.commit_ended() == "checkpoint_committed, tell 1");
  CHECK(machine.state.commits_in_flight == 0);
  // A rank that returns no longer blocks the others.
  report(machine, 0, 2);
  CHECK(machine.on(Uploaded{0, 2, std::nullopt}) == "");
  CHECK(machine.on(FunctionReturned{1, {}}) == "worker_finished, commit checkpoint_2");
  report(machine, 0, 3);
  CHECK(machine.on(Uploaded{0, 3, std::nullopt}) == "commit checkpoint_3");
}

TEST_CASE("the files of each rank are part of the commit") {
  RunMachine machine;
  machine.run();
  for (int rank : {0, 1}) {
    report(machine, rank, 0);
    machine.on(Uploaded{rank, 0, std::nullopt, List{Value(List{"rank_" + std::to_string(rank), 1, "aa"})}});
  }
  const auto* commit = std::get_if<Commit>(&machine.all.back());
  REQUIRE(commit);
  REQUIRE(commit->checkpoint.files.size() == 2);
  CHECK(commit->checkpoint.files.at(0).at(0)[0] == Value("rank_0"));
  CHECK(commit->checkpoint.files.at(1).at(0)[0] == Value("rank_1"));
}

TEST_CASE("ranks that wrote different content to the same file cause a warning") {
  RunMachine machine(1);
  machine.run();
  store(machine, 0);
  CHECK(machine.on(CommitEnded{ready_of(0), {"model.pt: rank 0, 3"}, std::nullopt}) ==
        "warning, checkpoint_committed, tell 0");
  CHECK(machine.recorded("warning")["message"].as_string().find(
            "checkpoint_0: ranks wrote different content to the same file (model.pt: rank 0, 3)") == 0);
}

TEST_CASE("reports are numbered from the newest checkpoint after a restart") {
  RunMachine machine;
  machine.rules.max_failures = 1;
  machine.state.commits = CommitBook(0, 3);
  machine.run();
  for (int rank : {0, 1}) {
    report(machine, rank, 3);
    machine.on(Uploaded{rank, 3, std::nullopt});
    machine.on(Reported{rank, 4, {{"step", 4}}, std::nullopt});
  }
  machine.commit_ended();
  report(machine, 0, 5);
  machine.on(raised(1));
  machine.on(TimerFired{Timer::kCause});
  machine.exit_all();
  for (int rank : {0, 1}) CHECK(machine.state.commits.next_report(rank) == 4);
  machine.run_again();
  CHECK(machine.on(Reported{0, 4, {{"step", 4}}, std::nullopt}) == "report");
  CHECK(machine.recorded("report")["attempt"] == Value(1));
  CHECK(machine.state.reports.count() == 5);  // repeated reports are not counted twice
}

TEST_CASE("a rank that never reports, and then reports too late") {
  RunMachine machine;
  machine.run();
  report(machine, 0, 0);
  machine.on(Uploaded{0, 0, std::nullopt});
  CHECK(machine.on(Reported{0, 1, {}, "checkpoint_1"}) == "report, arm silence 10");
  CHECK(machine.on(Reported{0, 2, {}, "checkpoint_2"}) == "report");
  CHECK(machine.on(TimerFired{Timer::kSilence}) == "warning, commit checkpoint_0");
  CHECK(machine.recorded("warning")["message"] ==
        Value("checkpoint_0 is committed without rank 1, which has never reported"));
  SUBCASE("with files: they would be missing in the commit") {
    CHECK(machine.on(Reported{1, 0, {}, "checkpoint_0"}) == "arm cause 0.02, report");
    CHECK(machine.state.failures[0].message == "checkpoint_0 was committed without rank 1: its part arrived too late");
    // It continues until it is notified.
    CHECK(machine.on(Reported{1, 1, {}, std::nullopt}) == "report");
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.state.outcome == Outcome::kFailed);
  }
  SUBCASE("with files, while the run stops: the stop continues") {
    machine.rules.max_failures = 1;
    machine.on(StopRequested{"enough", false});
    CHECK(machine.on(Reported{1, 0, {}, "checkpoint_0"}) == "warning, report");
    CHECK(machine.on(Reported{1, 1, {}, std::nullopt}) == "report");
    CHECK(machine.state.phase == Phase::kDraining);
  }
  SUBCASE("without files: harmless") {
    CHECK(machine.on(Reported{1, 0, {}, std::nullopt}) == "report");
    CHECK(machine.state.phase == Phase::kRunning);
  }
}

TEST_CASE("a rank that is silent because it died is not given up on") {
  RunMachine machine;
  machine.rules.max_failures = 1;
  machine.run();
  for (int i = 0; i < 2; ++i) {
    report(machine, 0, i);
    machine.on(Uploaded{0, i, std::nullopt});
  }
  machine.on(ConnectionLost{1, "closed"});
  CHECK(machine.on(TimerFired{Timer::kSilence}) == "");
  machine.on(ProcessExited{1, kKilled});
  machine.on(TimerFired{Timer::kCause});
  CHECK(machine.state.commits.resume_at() == 0);
}

TEST_CASE("a checkpoint that could not be stored") {
  RunMachine machine;
  machine.run();
  report(machine, 0, 0);
  SUBCASE("is a failure") {
    CHECK(machine.on(Uploaded{0, 0, "disk full"}) == "arm cause 0.5");
    CHECK(machine.state.failures[0].message == "could not store the checkpoint of report 0: disk full");
    // The exception that the function gets from it follows, and is more informative.
    CHECK(machine.on(raised(0, "checkpoint_0 could not be stored")) == "arm cause 0.02");
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 exception, attempt_failed"));
  }
  SUBCASE("is a failure even if every function returns before the decision") {
    machine.on(Uploaded{0, 0, "disk full"});
    CHECK(machine.on(FunctionReturned{0, {}}) == "worker_finished");
    CHECK(machine.on(FunctionReturned{1, {}}) == "worker_finished");
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.state.outcome == Outcome::kFailed);
  }
  SUBCASE("is only a warning if the run ends anyway") {
    machine.on(raised(1));
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.on(Uploaded{0, 0, "disk full"}) == "warning");
    CHECK(machine.recorded("warning")["message"] == Value("could not store the checkpoint of report 0: disk full"));
    CHECK(machine.state.failures.size() == 1);
  }
}

TEST_CASE("a manifest that could not be written") {
  RunMachine machine;
  machine.rules.max_failures = 1;
  machine.run();
  store(machine, 0);
  SUBCASE("while the function runs: the attempt has failed, and the next one resumes before it") {
    CHECK(machine.commit_ended("disk full") == "arm cause 0.5");
    CHECK(machine.state.failures[0].message == "could not store the checkpoint of report 0: disk full");
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.exit_all().starts_with("disarm stop, attempt_started"));
    CHECK(machine.state.commits.next_report(0) == 0);
    CHECK(machine.state.kept.empty());
  }
  SUBCASE("as the last action of the run: the run fails") {
    machine.rules.max_failures = 0;
    CHECK(machine.on(FunctionReturned{0, {}}) == "worker_finished");
    CHECK(machine.on(FunctionReturned{1, {}}) == "worker_finished");
    CHECK(machine.commit_ended("disk full") == "arm cause 0.5");
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.exit_all(kCleanExit).ends_with("run_finished, finish"));
    CHECK(machine.state.outcome == Outcome::kFailed);
    CHECK(machine.state.error.find("could not store the checkpoint of report 0: disk full") != std::string::npos);
  }
  SUBCASE("while the run drains: it still stops") {
    machine.on(StopRequested{"enough", false});
    for (int rank : {0, 1}) CHECK(machine.on(UploadsDrained{rank}) == "");
    CHECK(machine.commit_ended("disk full") == "warning, kill 0 5, kill 1 5, disarm start, disarm cause, arm stop 5");
    machine.exit_all();
    CHECK(machine.state.outcome == Outcome::kStopped);
  }
  SUBCASE("while the gang ends: the next attempt resumes before it") {
    machine.on(raised(0));
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.exit_all() == "");
    CHECK(machine.commit_ended("disk full") ==
          "warning, disarm stop, attempt_started, reset, start 0, start 1, settle, arm start 120");
    CHECK(machine.state.commits.next_report(0) == 0);
  }
}

TEST_CASE("the run continues when the commit is complete") {
  RunMachine machine;
  machine.rules.max_failures = 1;
  machine.run();
  store(machine, 0);
  SUBCASE("to its end") {
    machine.on(FunctionReturned{0, {}});
    CHECK(machine.on(FunctionReturned{1, {}}) == "worker_finished");
    CHECK(machine.state.phase == Phase::kRunning);
    CHECK(machine.commit_ended() ==
          "checkpoint_committed, tell 0, goodbye 0, goodbye 1, disarm start, disarm cause, arm stop 5");
    machine.exit_all(kCleanExit);
    CHECK(machine.state.outcome == Outcome::kFinished);
  }
  SUBCASE("to the next attempt, which resumes after it") {
    machine.on(raised(0));
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.exit_all() == "");
    CHECK(machine.commit_ended() ==
          "checkpoint_committed, tell 0, disarm stop, attempt_started, reset, start 0, start 1, settle, arm start 120");
    CHECK(machine.state.commits.next_report(0) == 1);
  }
}

TEST_CASE("nothing is committed while the gang ends") {
  RunMachine machine;
  machine.run();
  report(machine, 0, 0);
  report(machine, 1, 0);
  machine.on(Uploaded{0, 0, std::nullopt});
  machine.on(raised(0));
  // While the cause is being determined, complete checkpoints still count.
  CHECK(machine.on(Uploaded{1, 0, std::nullopt}) == "commit checkpoint_0");
  report(machine, 0, 1);
  report(machine, 1, 1);
  machine.on(Uploaded{0, 1, std::nullopt});
  machine.on(TimerFired{Timer::kCause});
  CHECK(machine.on(Uploaded{1, 1, std::nullopt}) == "");
}

TEST_CASE("superfluous checkpoints are removed once a newer one is durable") {
  RunMachine machine(1);
  machine.rules.checkpoints.num_to_keep = 2;
  machine.rules.checkpoints.checkpoint_score_attribute = "loss";
  machine.rules.checkpoints.checkpoint_score_order = "min";
  machine.run();
  for (int i = 0; i < 2; ++i) {
    store(machine, i, {{"loss", i}});
    CHECK(machine.commit_ended() == fmt::format("checkpoint_committed, tell {}", i));
  }
  store(machine, 2, {{"loss", 9}});
  CHECK(kept(machine) == Names{"checkpoint_0", "checkpoint_1"});
  // The newest is the worst: it stays until there is a newer one.
  CHECK(machine.commit_ended() == "checkpoint_committed, tell 2");
  store(machine, 3, {{"loss", 0.5}});
  CHECK(
      machine.commit_ended() ==
      "checkpoint_committed, remove checkpoint_2, checkpoint_removed, remove checkpoint_1, checkpoint_removed, tell 3");
  CHECK(kept(machine) == Names{"checkpoint_0", "checkpoint_3"});
}

TEST_CASE("a resumed run counts the checkpoints of earlier starts") {
  RunMachine machine(1);
  machine.rules.checkpoints.num_to_keep = 1;
  machine.state.commits = CommitBook(0, 1);
  machine.state.kept = {{0, "checkpoint_0", {}, checkpoint::Status::kCommitted, {}, 4}};
  machine.state.first_attempt = machine.state.attempt = 6;
  machine.run();
  store(machine, 1);
  CHECK(machine.commit_ended() == "checkpoint_committed, remove checkpoint_0, checkpoint_removed, tell 1");
  store(machine, 2);
  machine.commit_ended();
  // Checkpoints to remove are identified by their report, not only by name.
  std::vector<checkpoint::Origin> removed;
  for (const auto& action : machine.all) {
    if (const auto* remove = std::get_if<RemoveCheckpoint>(&action)) removed.push_back(remove->origin);
  }
  CHECK(removed == std::vector<checkpoint::Origin>{{4, 0}, {6, 1}});
}

TEST_CASE("a reused name refers to the newer checkpoint") {
  RunMachine machine(1);
  machine.rules.checkpoints.num_to_keep = 1;
  machine.run();
  for (int i = 0; i < 2; ++i) {
    machine.on(Reported{0, i, {{"i", i}}, "best"});
    machine.on(Uploaded{0, i, std::nullopt});
    // Nothing is removed: the older one no longer exists.
    CHECK(machine.commit_ended() == fmt::format("checkpoint_committed, tell {}", i));
  }
  REQUIRE(machine.state.kept.size() == 1);
  CHECK(machine.state.kept[0].index == 1);
}

}  // namespace decide_checkpoints_test
