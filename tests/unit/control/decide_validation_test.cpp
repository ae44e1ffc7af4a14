#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

namespace decide_validation_test {

// Validations run beside the training; what they find goes into the checkpoint and counts for its rank.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;
using checkpoint::Status;

namespace {

const Dict kArguments{{"split", "test"}};
const Value kTask = Dict{{"fn_kwargs", kArguments}};

// One rank reports checkpoint_<index>, which is committed and waits for its validation.
std::string commit(RunMachine& machine, std::int64_t index, Metrics metrics = {}, Value validation = kTask) {
  machine.on(Reported{0, index, std::move(metrics), "checkpoint_" + std::to_string(index), std::move(validation)});
  machine.on(Uploaded{0, index, std::nullopt});
  return machine.commit_ended();
}

ValidationEnded ended(std::int64_t index, Metrics metrics) {
  return {"checkpoint_" + std::to_string(index), Status::kValidated, std::move(metrics), ""};
}

RunMachine running() {
  RunMachine machine(1);
  machine.run();
  return machine;
}

}  // namespace

TEST_CASE("a validation is requested when its checkpoint is durable") {
  RunMachine machine = running();
  CHECK(commit(machine, 0, {{"loss", 2}}) == "checkpoint_committed, validation_requested, tell 0");
  CHECK(machine.recorded("checkpoint_committed")["status"] == Value("PENDING_VALIDATION"));
  CHECK(
      machine.recorded("validation_requested") ==
      Dict{{"attempt", 0}, {"name", "checkpoint_0"}, {"index", 0}, {"fn_kwargs", kArguments}, {"timeout_s", nullptr}});
  REQUIRE(machine.state.kept.size() == 1);
  CHECK(machine.state.kept[0].pending());

  SUBCASE("and its metrics override the reported ones") {
    CHECK(machine.on(ended(0, {{"loss", 1}, {"acc", 0.5}})) == "update checkpoint_0, checkpoint_validated, tell 0");
    CHECK(machine.state.kept[0].metrics == Metrics{{"loss", 1}, {"acc", 0.5}});
    CHECK(machine.state.kept[0].status == Status::kValidated);
    CHECK(machine.state.kept[0].validation.is_null());
    CHECK(machine.recorded("checkpoint_validated") == Dict{{"attempt", 0},
                                                           {"name", "checkpoint_0"},
                                                           {"index", 0},
                                                           {"status", "VALIDATED"},
                                                           {"metrics", Dict{{"loss", 1}, {"acc", 0.5}}}});
    // Only once.
    CHECK(machine.on(ended(0, {{"acc", 0.9}})) == "");
    CHECK(machine.on(ended(7, {})) == "");
  }
  SUBCASE("or it fails, and the metrics stay") {
    for (Status status : {Status::kValidationFailed, Status::kValidationTimeout}) {
      RunMachine other = machine;
      CHECK(other.on(ValidationEnded{"checkpoint_0", status, {}, "ValueError: boom"}) ==
            "update checkpoint_0, checkpoint_validated, tell 0");
      CHECK(other.state.kept[0].metrics == Metrics{{"loss", 2}});
      CHECK(other.state.kept[0].status == status);
      CHECK(other.recorded("checkpoint_validated")["message"] == Value("ValueError: boom"));
      CHECK(other.state.phase == Phase::kRunning);
    }
  }
}

TEST_CASE("no checkpoint is removed before it is validated, and the result changes its rank") {
  RunMachine machine = running();
  machine.rules.checkpoints.num_to_keep = 1;
  machine.rules.checkpoints.checkpoint_score_attribute = "acc";
  CHECK(commit(machine, 0) == "checkpoint_committed, validation_requested, tell 0");
  CHECK(commit(machine, 1) == "checkpoint_committed, validation_requested, tell 1");
  CHECK(commit(machine, 2) == "checkpoint_committed, validation_requested, tell 2");
  CHECK(machine.on(ended(0, {{"acc", 0.9}})) == "update checkpoint_0, checkpoint_validated, tell 0");
  // Worse than 0, and not the newest.
  CHECK(machine.on(ended(1, {{"acc", 0.8}})) ==
        "update checkpoint_1, checkpoint_validated, remove checkpoint_1, checkpoint_removed, tell 1");
  // Better than 0, which is removed.
  CHECK(machine.on(ended(2, {{"acc", 0.95}})) ==
        "update checkpoint_2, checkpoint_validated, remove checkpoint_0, checkpoint_removed, tell 2");
  REQUIRE(machine.state.kept.size() == 1);
  CHECK(machine.state.kept[0].name == "checkpoint_2");
}

TEST_CASE("a reused name: the result for the older checkpoint is ignored") {
  RunMachine machine = running();
  for (std::int64_t index : {0, 1}) {
    machine.on(Reported{0, index, {{"step", index}}, "last", kTask});
    machine.on(Uploaded{0, index, std::nullopt});
    CHECK(machine.commit_ended().starts_with("checkpoint_committed, validation_requested"));
  }
  REQUIRE(machine.state.kept.size() == 1);
  CHECK(machine.on(ValidationEnded{"last", Status::kValidated, {{"acc", 0.1}}, ""}) == "");
  CHECK(machine.state.kept[0].pending());
  CHECK(machine.on(ValidationEnded{"last", Status::kValidated, {{"acc", 0.9}}, ""}) ==
        "update last, checkpoint_validated, tell 1");
  CHECK(machine.state.kept[0].metrics == Metrics{{"step", 1}, {"acc", 0.9}});
}

TEST_CASE("a resumed run requests pending validations again") {
  RunMachine machine(1);
  machine.state.kept = {{0, "checkpoint_0", {}, Status::kValidated, {}},
                        {1, "checkpoint_1", {}, Status::kPendingValidation, kTask},
                        {2, "checkpoint_2", {}, Status::kValidationFailed, {}}};
  CHECK(machine.on(Begin{}) == "validation_requested, reserve");
  CHECK(
      machine.recorded("validation_requested") ==
      Dict{{"attempt", 0}, {"name", "checkpoint_1"}, {"index", 1}, {"fn_kwargs", kArguments}, {"timeout_s", nullptr}});
}

TEST_CASE("the run ends when the last validation has ended") {
  RunMachine machine = running();
  machine.rules.max_failures = 0;
  commit(machine, 0);
  commit(machine, 1);
  SUBCASE("after a return") { machine.on(FunctionReturned{0, {"value"}}); }
  SUBCASE("after a failure") {
    machine.on(raised(0));
    machine.on(TimerFired{Timer::kCause});
  }
  const Outcome outcome = machine.state.outcome;
  CHECK(machine.exit_all(kCleanExit) == "disarm stop, release");
  CHECK(machine.state.phase == Phase::kValidating);
  CHECK(machine.on(ended(1, {})) == "update checkpoint_1, checkpoint_validated, tell 1");
  CHECK(machine.on(ended(0, {})) == "update checkpoint_0, checkpoint_validated, tell 0, run_finished, finish");
  CHECK(machine.state.outcome == outcome);
  CHECK(outcome != Outcome::kNone);
}

TEST_CASE("a validation that ends while the gang ends delays nothing") {
  RunMachine machine = running();
  commit(machine, 0);
  machine.on(FunctionReturned{0, {}});
  CHECK(machine.on(ended(0, {})) == "update checkpoint_0, checkpoint_validated, tell 0");
  CHECK(machine.exit_all(kCleanExit) == "disarm stop, release, run_finished, finish");
}

TEST_CASE("a stop does not wait for validations") {
  RunMachine machine = running();
  commit(machine, 0);
  SUBCASE("while the function runs") {
    machine.on(StopRequested{"enough", false});
    machine.on(UploadsDrained{0});
    CHECK(machine.exit_all() == "disarm stop, release, run_finished, finish");
    CHECK(machine.state.outcome == Outcome::kStopped);
  }
  SUBCASE("while only validations run: the outcome of the training stays") {
    machine.on(FunctionReturned{0, {"value"}});
    machine.exit_all(kCleanExit);
    CHECK(machine.on(StopRequested{"enough", false}) == "stop_requested, run_finished, finish");
    CHECK(machine.state.outcome == Outcome::kFinished);
    CHECK(machine.recorded("run_finished")["return_value"] == Value("value"));
  }
  // It has no result: the next start requests it again.
  CHECK(machine.state.kept[0].pending());
}

TEST_CASE("validations outlive the attempt that requested them") {
  RunMachine machine = running();
  machine.rules.max_failures = 1;
  commit(machine, 0);
  machine.on(raised(0));
  machine.on(TimerFired{Timer::kCause});
  CHECK(machine.exit_all().starts_with("disarm stop, attempt_started"));
  CHECK(machine.on(ended(0, {{"acc", 1}})) == "update checkpoint_0, checkpoint_validated, tell 0");
  CHECK(machine.count("validation_requested") == 1);
}

}  // namespace decide_validation_test
