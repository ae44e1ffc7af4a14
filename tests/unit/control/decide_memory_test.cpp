#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

namespace decide_memory_test {

// Checkpoints that are committed while only nodes hold them.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

List file(const std::string& path, const std::string& digest = "0123456789abcdef") {
  return {Value(List{path, 5, digest})};  // without Value, compilers disagree whether this is the list itself
}

std::string name_of(std::int64_t index) { return "checkpoint_" + std::to_string(index); }

// Both ranks report it, and nodes hold their files; then it is committed.
std::string commit(RunMachine& machine, std::int64_t index, int nodes = 2) {
  for (int rank = 0; rank < 2; ++rank) machine.on(Reported{rank, index, {}, name_of(index)});
  machine.on(Uploaded{0, index, std::nullopt, file("a"), nodes});
  machine.on(Uploaded{1, index, std::nullopt, file("b"), 2});
  const auto& made = std::get<Commit>(machine.all.back()).checkpoint;
  CHECK(made.in_memory());
  return machine.on(CommitEnded{made, {}, {}, true});
}

CheckpointStored stored(std::int64_t index) { return {index, name_of(index), 10, 0.5}; }

std::vector<std::string> kept(const RunMachine& machine) {
  std::vector<std::string> names;
  for (const auto& each : machine.state.kept) names.push_back(each.name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a checkpoint is committed in memory only if nodes hold all of it") {
  ReadyCheckpoint ready;
  CHECK_FALSE(ready.in_memory());
  ready.files = {{0, file("a")}, {1, file("b")}};
  ready.nodes = {{0, 2}};
  CHECK_FALSE(ready.in_memory());  // the storage has the files of rank 1
  ready.nodes[1] = 1;
  CHECK(ready.in_memory());
  ready.files[2] = {};  // this rank has stored nothing
  CHECK(ready.in_memory());
  ready.files[2] = file("b");  // the same as rank 1
  ready.nodes[2] = 2;
  CHECK(ready.in_memory());
  ready.files[2] = file("b", "fedcba9876543210");  // the storage decides which one counts
  CHECK_FALSE(ready.in_memory());
  ready.files.erase(2);
  ready.validation = Dict{{"timeout_s", 1}};  // reads the storage
  CHECK_FALSE(ready.in_memory());
}

TEST_CASE("a commit in memory is followed by one event when the checkpoint is stored") {
  RunMachine machine;
  machine.run();
  CHECK(commit(machine, 0) == "checkpoint_committed, tell 0");
  CHECK(machine.recorded("checkpoint_committed")["in_memory_of_nodes"].as_int() == 2);
  CHECK(machine.state.collecting == std::set<std::int64_t>{0});
  CHECK(machine.on(stored(0)) == "checkpoint_stored");
  CHECK(machine.recorded("checkpoint_stored")["bytes"].as_int() == 10);
  CHECK(machine.state.collecting.empty());
  CHECK(machine.on(stored(0)) == "");
}

TEST_CASE("a single copy is announced once") {
  RunMachine machine;
  machine.run();
  CHECK(commit(machine, 0, 1) == "warning, checkpoint_committed, tell 0");
  CHECK(machine.recorded("warning")["message"].as_string() ==
        "checkpoint_0 is in the memory of one node only, because no other node has room for a copy: until it is on the "
        "driver's disk, it is lost if that node fails");
  CHECK(commit(machine, 1, 1) == "checkpoint_committed, tell 1");
}

TEST_CASE("a checkpoint that is removed before it is stored is not waited for") {
  RunMachine machine;
  machine.rules.checkpoints.num_to_keep = 1;
  machine.run();
  commit(machine, 0);
  CHECK(commit(machine, 1) == "checkpoint_committed, remove checkpoint_0, checkpoint_removed, tell 1");
  CHECK(machine.state.collecting == std::set<std::int64_t>{1});
  CHECK(machine.on(stored(0)) == "");
}

TEST_CASE("the run ends when all checkpoints are stored, and keeps its room until then") {
  RunMachine machine;
  machine.run();
  commit(machine, 0);
  for (int rank = 0; rank < 2; ++rank) machine.on(FunctionReturned{rank, {}});
  CHECK(machine.exit_all({engine::ExitStatus::Kind::kCode, 0}).find("release") == std::string::npos);
  CHECK(machine.state.phase == Phase::kValidating);
  CHECK(machine.on(stored(0)) == "checkpoint_stored, release, run_finished, finish");
}

TEST_CASE("what cannot be stored is reported, and the run ends without it") {
  RunMachine machine;
  machine.run();
  commit(machine, 0);
  for (int rank = 0; rank < 2; ++rank) machine.on(FunctionReturned{rank, {}});
  machine.exit_all({engine::ExitStatus::Kind::kCode, 0});
  CHECK(machine.on(CheckpointLost{0, "checkpoint_0", "no node that is left holds its file a"}) ==
        "warning, checkpoint_removed, release, run_finished, finish");
  CHECK(machine.recorded("warning")["message"].as_string() ==
        "checkpoint_0 is lost: no node that is left holds its file a");
  CHECK(kept(machine).empty());
}

TEST_CASE("a run that is killed does not wait") {
  RunMachine machine;
  machine.run();
  commit(machine, 0);
  for (int rank = 0; rank < 2; ++rank) machine.on(FunctionReturned{rank, {}});
  machine.exit_all({engine::ExitStatus::Kind::kCode, 0});
  CHECK(machine.on(StopRequested{"Ctrl-C", false}) == "stop_requested");
  CHECK(machine.on(StopRequested{"Ctrl-C", true}) ==
        "stop_requested, warning, checkpoint_removed, release, run_finished, finish");
}

TEST_CASE("an attempt resumes from an earlier checkpoint if newer ones are lost") {
  RunMachine machine;
  machine.rules.max_failures = 1;
  machine.settles = false;
  machine.run();
  machine.on(StorageSettled{0});
  commit(machine, 0);
  machine.on(stored(0));
  commit(machine, 1);
  CHECK(machine.state.commits.resume_at() == 2);
  machine.on(FunctionFailed{0, "E", "broken", "", {}});
  machine.on(TimerFired{Timer::kCause});
  machine.exit_all();
  REQUIRE(machine.state.attempt == 1);
  StorageSettled settled{1};
  settled.earlier = EarlierStart{1, Dict{{"data/train", 5}}, "checkpoint_1 is lost"};
  CHECK(machine.on(settled) == "warning, checkpoint_removed");
  CHECK(machine.state.commits.resume_at() == 1);
  CHECK(machine.state.commits.next_report(1) == 1);
  CHECK(machine.state.commits.first_positions() == Dict{{"data/train", 5}});
  CHECK(kept(machine) == Names{"checkpoint_0"});
  CHECK(machine.state.collecting.empty());
}

TEST_CASE("gangs whose agents end with them are released when the checkpoints are stored") {
  for (const bool with_gang : {false, true}) {
    CAPTURE(with_gang);
    RunMachine machine;
    machine.rules.max_failures = 1;
    machine.rules.agents_end_with_gang = with_gang;
    machine.run();
    commit(machine, 0);
    machine.on(GangLost{0, "node b is lost"});
    machine.on(ProcessExited{1, {}, {}, {}, {}, "node b is lost"});
    machine.on(TimerFired{Timer::kCause});
    machine.on(ProcessExited{0, {engine::ExitStatus::Kind::kSignal, 9}});
    const bool released = to_text(machine.all).find("release") != std::string::npos;
    CHECK(released == !with_gang);
    if (with_gang) CHECK(machine.on(stored(0)).find("release") != std::string::npos);
  }
}

}  // namespace decide_memory_test
