// Checkpoints of complete runs: real storage, real sockets, ranks as threads.

#include <doctest/doctest.h>

#include <atomic>
#include <future>

#include "control/controller.h"
#include "unit/control/thread_run.h"

namespace controller_checkpoints_test {

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;
using engine::testing::eventually;
using worker::CheckpointSource;
using worker::Session;

namespace {

using Status = std::optional<engine::ExitStatus>;
using Names = std::vector<std::string>;
constexpr std::nullopt_t kReturn = std::nullopt;

std::vector<checkpoint::Committed> committed(ThreadRun& run) {
  auto listing = checkpoint::list_committed(*run.plan().files, run.plan().storage_path);
  REQUIRE(listing);
  CHECK(listing->damaged.empty());
  return listing->committed;
}

Names names_of(const std::vector<checkpoint::Committed>& all) {
  Names names;
  for (const auto& each : all) names.push_back(each.name);
  return names;
}

CheckpointSource state_of(std::int64_t value, CheckpointUploadMode mode) {
  CheckpointSource source;
  source.state = Dict{{"w", Tensor::of<std::int64_t>({value, value})}};
  source.mode = mode;
  return source;
}

}  // namespace

TEST_CASE("parts of all ranks, in all modes, form one checkpoint") {
  ThreadRun run(
      3, workers([](Session& session) -> Status {
        const int rank = session.start().world_rank;
        // Each in another mode: a folder, a state, a state that is written asynchronously.
        auto part = rank == 0 ? part_of(session, CheckpointUploadMode::kAsync)
                              : state_of(rank, rank == 1 ? CheckpointUploadMode::kSync : CheckpointUploadMode::kAsync);
        return session.report({{"rank", rank}}, std::move(part)) ? Status() : Status(kFailedExit);
      }));
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.checkpoint == run.plan().path + "/checkpoint_000000");
  REQUIRE(end.checkpoints.size() == 1);
  CHECK(end.checkpoints[0].metrics == Metrics{{"rank", 0}});
  const auto all = committed(run);
  REQUIRE(all.size() == 1);
  Names files;
  for (const auto& file : all[0].manifest.files) files.push_back(file.path);
  CHECK(files == Names{"rank_0", "rank_1/state.json", "rank_1/state.safetensors", "rank_2/state.json",
                       "rank_2/state.safetensors"});
  CHECK(checkpoint::verify(*run.plan().files, all[0], true));
}

TEST_CASE("superfluous checkpoints are removed, and ranks receive the remaining list") {
  std::mutex mutex;
  std::map<int, List> listed;
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  const int rank = session.start().world_rank;
                  for (int i = 0; i < 4; ++i) {
                    // 1 is the best, 3 the newest.
                    const double loss = i == 1 ? 0.5 : 1.0 + i;
                    if (!session.report({{"loss", loss}}, part_of(session))) return kFailedExit;
                  }
                  auto left = session.list_checkpoints(false, kPatience);
                  if (!left) return kFailedExit;
                  const std::lock_guard lock(mutex);
                  listed[rank] = *left;
                  return kReturn;
                }));
  auto& config = run.plan().rules.checkpoints;
  config.num_to_keep = 1;
  config.checkpoint_score_attribute = "loss";
  config.checkpoint_score_order = "min";
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(names_of(committed(run)) == Names{"checkpoint_000001", "checkpoint_000003"});
  CHECK(run.events("checkpoint_removed").size() == 2);
  REQUIRE(end.checkpoints.size() == 2);
  CHECK(end.checkpoints.back().name == "checkpoint_000001");
  CHECK(end.checkpoint == run.plan().path + "/checkpoint_000003");
  // Worst first, and all of them: the list was requested after four reports.
  for (int rank : {0, 1}) CHECK(listed[rank] == to_list(end.checkpoints, run.plan().storage_path));
}

TEST_CASE("a graceful stop waits for uploads in flight") {
  std::promise<void> under_way;
  std::promise<void> gate;
  ThreadRun run(1, workers([&, open = gate.get_future().share()](Session& session) -> Status {
                  CheckpointSource source;
                  source.mode = CheckpointUploadMode::kAsync;
                  source.upload = [&](const std::string& name) -> base::Result<std::string> {
                    under_way.set_value();
                    open.wait();
                    const std::string folder = session.start().storage_path + "/" + name;
                    tests::append_file(folder + "/weights", "w");
                    return folder;
                  };
                  if (!session.report({{"step", 0}}, std::move(source))) return kFailedExit;
                  (void)session.store_get("never", kPatience).ok();
                  return kFailedExit;
                }));
  run.start();
  under_way.get_future().wait();
  run.controller().stop("enough", false);
  REQUIRE(run.wait_for("stop_requested"));
  gate.set_value();
  RunEnd end = run.wait();
  CHECK(end.outcome == Outcome::kStopped);
  CHECK(end.error == "stopped: enough");
  CHECK(names_of(committed(run)) == Names{"checkpoint_000000"});
  CHECK(end.checkpoint == run.plan().path + "/checkpoint_000000");
}

TEST_CASE("an asynchronous upload that fails fails the run with its cause") {
  ThreadRun run(1, workers([&](Session& session) -> Status {
                  CheckpointSource source;
                  source.mode = CheckpointUploadMode::kAsync;
                  source.upload = [](const std::string&) -> base::Result<std::string> {
                    return base::error("no such bucket");
                  };
                  if (!session.report({{"step", 0}}, std::move(source))) return kFailedExit;
                  return kReturn;
                }));
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFailed);
  CHECK(end.error.find("could not store the checkpoint of report 0: no such bucket") != std::string::npos);
}

TEST_CASE("a validation during the training") {
  std::atomic<int> problems = 0;
  ThreadRun run(
      1, workers([&](Session& session) -> Status {
        auto stored = session.report({{"loss", 2}}, part_of(session), {.validation = Dict{{"timeout_s", 7}}});
        if (!stored) return kFailedExit;
        auto known = session.list_checkpoints(false, kPatience);
        if (!known || (*known)[0]["status"] != Value("PENDING_VALIDATION")) ++problems;
        auto validated = session.list_checkpoints(true, kPatience);
        if (!validated || (*validated)[0]["status"] != Value("VALIDATED")) ++problems;
        // Another one that is not waited for.
        return session.report({{"loss", 1}}, part_of(session), {.validation = Dict()}) ? Status() : Status(kFailedExit);
      }));
  run.start();
  REQUIRE(run.wait_for("validation_requested"));
  CHECK(run.events("validation_requested")[0]["timeout_s"] == Value(7));
  run.controller().finish_validation({"checkpoint_000000", checkpoint::Status::kValidated, {{"acc", 0.5}}, ""});
  // The workers have exited, and the run continues.
  REQUIRE(run.wait_for("validation_requested", 2));
  REQUIRE(run.wait_for("worker_finished"));
  CHECK_FALSE(run.controller().finished());
  run.controller().finish_validation({"checkpoint_000001", checkpoint::Status::kValidationFailed, {}, "boom"});
  RunEnd end = run.wait();
  CHECK(problems == 0);
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(end.return_value == ReturnValue{"value of 0"});
  const auto all = committed(run);
  REQUIRE(all.size() == 2);
  CHECK(all[0].manifest.status == checkpoint::Status::kValidated);
  CHECK(all[0].manifest.metrics == Metrics{{"loss", 2}, {"acc", 0.5}});
  CHECK(all[1].manifest.status == checkpoint::Status::kValidationFailed);
  CHECK(all[1].manifest.metrics == Metrics{{"loss", 1}});
  CHECK(run.logged().back()["event"] == Value("run_finished"));
}

TEST_CASE("a restarted gang finds the newest checkpoint in memory") {
  std::mutex mutex;
  std::map<std::string, Dict> memory;
  std::atomic<int> problems = 0;
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  const auto& start = session.start();
                  if (start.attempt == 1) {
                    const std::lock_guard lock(mutex);
                    for (const auto& [file, where] : start.memory) {
                      auto held = storage::read_file(where.as_string());
                      auto stored = storage::read_file(*start.checkpoint + "/" + file);
                      if (!held || !stored || *held != *stored) ++problems;
                    }
                    memory[std::to_string(start.world_rank)] = start.memory;
                    return kReturn;
                  }
                  if (!start.memory.empty()) ++problems;
                  for (int i = 0; i < 3; ++i) {
                    if (!session.report({}, state_of(10 * start.world_rank + i, CheckpointUploadMode::kAsync)))
                      return kFailedExit;
                  }
                  if (!session.list_checkpoints(false, kPatience) || !session.barrier()) return kFailedExit;
                  if (start.world_rank == 0) return kSegmentationFault;
                  (void)session.store_get("never", kPatience).ok();
                  return kFailedExit;
                }));
  run.plan().rules.max_failures = 1;
  run.plan().rules.checkpoints.keep_in_memory = true;
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(problems == 0);
  CHECK(end.checkpoint == run.plan().path + "/checkpoint_000002");
  REQUIRE(memory.size() == 2);
  Names files;
  for (const auto& [file, where] : memory["0"]) files.push_back(file);
  CHECK(files == Names{"rank_1/state.json", "rank_1/state.safetensors", "state.json", "state.safetensors"});
  CHECK(memory["1"] == memory["0"]);
}

TEST_CASE("a run resumes from the checkpoints of earlier starts") {
  ThreadRun run(1, workers([](Session& session) -> Status {
                  const auto& start = session.start();
                  if (start.next_report != 5 || start.checkpoint != "/elsewhere/c4") return kFailedExit;
                  return session.report({}, part_of(session)) ? Status() : Status(kFailedExit);
                }));
  run.plan().kept = {{4, "checkpoint_000004", {}, checkpoint::Status::kPendingValidation, Dict()}};
  run.plan().checkpoint = "/elsewhere/c4";
  run.plan().first_report = 5;
  run.plan().first_attempt = 2;
  run.plan().warnings = {"checkpoint_000003 is damaged"};
  run.start();
  REQUIRE(run.wait_for("validation_requested"));
  CHECK(run.events("warning").front()["message"] == Value("checkpoint_000003 is damaged"));
  run.controller().finish_validation({"checkpoint_000004", checkpoint::Status::kValidationTimeout, {}, ""});
  RunEnd end = run.wait();
  CHECK(end.error == "");
  CHECK(end.last_attempt == 2);
  REQUIRE(end.checkpoints.size() == 2);
  CHECK(end.checkpoints[0].status == checkpoint::Status::kValidationTimeout);
  CHECK(end.checkpoints[1].name == "checkpoint_000005");
  // The missing checkpoint could not be updated: only a warning.
  CHECK(run.events("warning").size() <= 2);
}

TEST_CASE("rank 0's metrics are written to a table next to the log") {
  ThreadRun run(2, workers([](Session& session) -> Status {
                  for (int i = 0; i < 2; ++i) {
                    if (!session.report({{"loss", i}, {"rank", session.start().world_rank}})) return kFailedExit;
                  }
                  return kReturn;
                }));
  CHECK(run.go().outcome == Outcome::kFinished);
  const std::string table = storage::read_file(run.dir() / "metrics.csv").value();
  CHECK(table.starts_with("step,time,attempt,loss,rank\n0,"));
  CHECK(std::count(table.begin(), table.end(), '\n') == 3);
  CHECK(table.ends_with(",0,1,0\n"));
}

TEST_CASE("incomplete files of a failed attempt are removed before the next one") {
  ThreadRun run(2, workers([](Session& session) -> Status {
                  const auto& start = session.start();
                  const std::string half = start.storage_path + "/checkpoint_000000";
                  if (start.attempt == 1) return std::filesystem::exists(half) ? Status(kFailedExit) : Status();
                  // Rank 1 never reports: nothing is committed.
                  if (start.world_rank == 0 && !session.report({}, part_of(session))) return kFailedExit;
                  if (!session.barrier()) return kFailedExit;
                  if (start.world_rank == 0) return kSegmentationFault;
                  (void)session.store_get("never", kPatience).ok();
                  return kFailedExit;
                }));
  run.plan().rules.max_failures = 1;
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(committed(run).empty());
}

}  // namespace controller_checkpoints_test
