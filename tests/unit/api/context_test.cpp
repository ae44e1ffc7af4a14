// The calls of a training function over a real session.

#include "trireme/context.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "api/train_session.h"
#include "trireme/position.h"
#include "unit/control/thread_run.h"

namespace context_test {

using namespace trireme;
using namespace trireme::control::testing;
using trireme::control::Outcome;
using trireme::control::RunEnd;
using trireme::engine::testing::eventually;
using trireme::worker::Session;

namespace {

using Status = std::optional<engine::ExitStatus>;

// Like Program::run_attempt(), but the caller owns the session.
api::Current current_of(Session& session) {
  api::Current current;
  current.context = api::context_of(session.start());
  current.session = std::shared_ptr<Session>(&session, [](Session*) {});
  current.stored_positions = session.start().positions;
  return current;
}

std::string newest() {
  const auto checkpoint = get_checkpoint();
  return checkpoint ? std::filesystem::path(checkpoint->path()).filename().native() : "none";
}

}  // namespace

TEST_CASE("get_checkpoint() returns a checkpoint reported with ASYNC once it is committed") {
  std::vector<std::string> seen;
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  if (session.start().world_rank == 1) {
                    // The commits wait for its reports.
                    for (const char* key : {"first", "second"}) {
                      if (!session.store_get(key, kPatience) || !session.report({})) return kFailedExit;
                    }
                    return std::nullopt;
                  }
                  auto current = current_of(session);
                  const api::CurrentScope scope(current);
                  const ReportOptions async{.checkpoint_dir_name = "slot",
                                            .checkpoint_upload_mode = CheckpointUploadMode::kAsync};
                  seen.push_back(newest());
                  report({}, Checkpoint::from_state({{"step", 0}}), async);
                  const std::string folder = session.start().storage_path + "/slot";
                  if (!eventually([&] { return std::filesystem::exists(folder + "/state.json"); })) return kFailedExit;
                  seen.push_back(newest());
                  if (!session.store_set("first", "go")) return kFailedExit;
                  if (!eventually([] { return newest() == "slot"; })) return kFailedExit;
                  // SYNC: as soon as this rank has stored it.
                  report({}, Checkpoint::from_state({{"step", 1}}), {.checkpoint_dir_name = "other"});
                  seen.push_back(newest());
                  if (!session.store_set("second", "go")) return kFailedExit;
                  return std::nullopt;
                }));
  const RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(seen == std::vector<std::string>{"none", "none", "other"});
}

TEST_CASE("a stored position that is not restored stays in the next checkpoints") {
  const Dict stored{{"data/train", Dict{{"epoch", 2}}}, {"data/eval", Dict{{"epoch", 1}}}};
  std::vector<Dict> began;
  ThreadRun run(1, workers([&](Session& session) -> Status {
                  auto current = current_of(session);
                  const api::CurrentScope scope(current);
                  began.push_back(session.start().positions);
                  if (session.start().attempt == 3) return std::nullopt;
                  std::optional<detail::PositionSource> source;
                  if (session.start().attempt == 1) {
                    source.emplace(detail::PositionSource::Named{"data/train"}, [] { return Dict{{"epoch", 3}}; });
                    CHECK(source->stored() == Dict{{"epoch", 2}});
                  }
                  if (session.start().attempt == 2) {
                    // Restored and then dropped: it is not stored again.
                    detail::PositionSource(detail::PositionSource::Named{"data/eval"}, [] { return Dict(); });
                  }
                  report({}, Checkpoint::from_state({{"step", 0}}));
                  if (!session.list_checkpoints(false, kPatience)) return kFailedExit;
                  return kSegmentationFault;
                }));
  run.plan().positions = stored;
  run.plan().rules.max_failures = 3;
  const RunEnd end = run.go();
  CHECK(end.error == "");
  REQUIRE(began.size() == 4);
  CHECK(began[0] == stored);
  CHECK(began[1] == stored);
  const Dict taken_up{{"data/train", Dict{{"epoch", 3}}}, {"data/eval", Dict{{"epoch", 1}}}};
  for (const auto& [name, position] : taken_up) CHECK(began[2][name] == position);
  CHECK(began[3] == Dict{{"data/train", Dict{{"epoch", 3}}}});
}

TEST_CASE("threads of a function report, read the checkpoint and create sources at the same time") {
  api::Current current;  // local mode
  const api::CurrentScope scope(current);
  constexpr int kReports = 2'000;
  const std::string long_path(100, 'a');  // not in the string object itself
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kReports; ++i) {
        report({{"thread", thread}}, Checkpoint::from_state({{"path", long_path}}));
        const auto checkpoint = get_checkpoint();
        if (!checkpoint || checkpoint->state()->at("path") != Value(long_path)) ++wrong;
      }
    });
    threads.emplace_back([&] {
      for (int i = 0; i < kReports; ++i) {
        const detail::PositionSource source("loader", [] { return Dict{{"row", 1}}; });
        (void)api::positions_now(current);
      }
    });
  }
  threads.clear();
  CHECK(wrong == 0);
  CHECK(current.reports == 3 * kReports);
  CHECK(current.positions_made["loader"] == 3 * kReports);
  CHECK(current.positions.empty());
}

}  // namespace context_test
