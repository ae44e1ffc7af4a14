#include <doctest/doctest.h>

#include <set>

#include "unit/control/thread_run.h"
#include "unit/fake_clock.h"

namespace controller_restart_test {

// Restarts and resizes in which workers keep their "process": real sockets and sessions.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;
using trireme::worker::Session;

namespace {

using Status = std::optional<engine::ExitStatus>;
const Status kReturn = std::nullopt;

// Like a worker's main(): loops over the attempts.
ThreadEngine::Body lasting_workers(std::function<Status(Session&, int attempts_here)> work) {
  return [work = std::move(work)](const RankProcess& process) -> engine::ExitStatus {
    auto joined = join_as(process);
    if (!joined) return kFailedExit;
    Session& session = **joined;
    for (int attempts_here = 1;; ++attempts_here) {
      if (!session.wait_start()) return kFailedExit;
      session.entered();
      if (auto status = work(session, attempts_here)) return *status;
      if (!session.cancelled()) (void)session.finish("done", false).ok();
      if (!session.wait_for_cancel()) return kEnded;
      session.become_ready();
    }
  };
}

std::string store(Session& session, std::int64_t step) {
  auto stored = session.report({{"step", step}}, part_of(session), {.positions = {{"loader/0", step}}});
  return stored ? "" : stored.error().message();
}

}  // namespace

TEST_CASE("a survivor continues in its own process, from the newest checkpoint and its positions") {
  std::mutex mutex;
  std::vector<std::string> seen;
  ThreadRun run(
      2, lasting_workers([&](Session& session, int attempts_here) -> Status {
        const auto& start = session.start();
        {
          const std::lock_guard lock(mutex);
          const Value* place = start.positions.find("loader/0");
          seen.push_back(fmt::format("attempt {} rank {} here {} report {} place {}", start.attempt, start.world_rank,
                                     attempts_here, start.next_report, place ? place->as_int() : -1));
        }
        for (std::int64_t step = start.next_report; step < 3; ++step) {
          if (!store(session, step).empty()) return kReturn;
          // Everything up to here is committed.
          if (!session.list_checkpoints(false, std::nullopt)) return kReturn;
          if (start.world_rank == 1 && start.attempt == 0 && step == 1) return kSegmentationFault;
          if (!session.barrier()) return kReturn;
        }
        return kReturn;
      }));
  run.plan().rules.warm_restart = true;
  run.plan().rules.max_failures = 1;
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(end.checkpoint == run.plan().path + "/checkpoint_000002");
  std::sort(seen.begin(), seen.end());
  CHECK(seen == std::vector<std::string>{
                    "attempt 0 rank 0 here 1 report 0 place -1",
                    "attempt 0 rank 1 here 1 report 0 place -1",
                    "attempt 1 rank 0 here 2 report 2 place 1",
                    "attempt 1 rank 1 here 1 report 2 place 1",
                });
  CHECK(run.engine().starts() == 3);
  CHECK(run.events("worker_kept").size() == 1);
  REQUIRE(run.events("restarted").size() == 1);
  const Dict restarted = run.events("restarted").front();
  CHECK(restarted["kind"] == Value("warm"));
  CHECK(restarted["kept"] == Value(1));
  CHECK(restarted["replaced"] == Value(1));
  for (const char* phase : {"detect_s", "decide_s", "stop_s", "start_s", "rendezvous_s", "restore_s"}) {
    CHECK(restarted[phase].as_double() >= 0);
  }
}

TEST_CASE("an interrupt is repeated until the function is left") {
  std::atomic<int> interrupts = 0;
  ThreadRun run(2, lasting_workers([&](Session& session, int) -> Status {
                  if (session.start().attempt == 1) return kReturn;
                  if (session.start().world_rank == 1) return kSegmentationFault;
                  session.set_interrupt([&] { ++interrupts; });
                  while (interrupts < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  return kReturn;
                }));
  run.plan().rules.warm_restart = true;
  run.plan().rules.max_failures = 1;
  CHECK(run.go().outcome == Outcome::kFinished);
}

TEST_CASE("a rank that does not leave its function is replaced") {
  std::atomic<bool> over = false;
  ThreadRun run(2, lasting_workers([&](Session& session, int) -> Status {
                  if (session.start().attempt == 1) return kReturn;
                  if (session.start().world_rank == 1) return kSegmentationFault;
                  while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  return kEnded;
                }));
  run.plan().rules.warm_restart = true;
  run.plan().rules.cancel_timeout_s = 0.05;
  run.plan().rules.max_failures = 1;
  CHECK(run.go().outcome == Outcome::kFinished);
  over = true;
  CHECK(run.engine().starts() == 4);
  CHECK(run.events("worker_kept").empty());
}

TEST_CASE("a gang grows and shrinks at checkpoints, and every step counts once") {
  std::mutex mutex;
  std::map<std::int64_t, int> world_sizes;  // by step
  std::atomic<bool> shrunk = false;
  ThreadRun* whole = nullptr;
  ThreadRun run(2, lasting_workers([&](Session& session, int) -> Status {
                  const auto& start = session.start();
                  for (std::int64_t step = start.next_report; step < 400 && !shrunk; ++step) {
                    if (!session.barrier()) return kReturn;
                    if (start.world_rank == 0 && step == 3) whole->engine().set_optional_room(2);
                    if (start.world_rank == 0 && start.world_size == 4 && step == start.next_report + 2) {
                      whole->engine().reclaim_newest();
                    }
                    if (!store(session, step).empty()) return kReturn;
                    const std::lock_guard lock(mutex);
                    auto [it, first] = world_sizes.emplace(step, start.world_size);
                    if (it->second != start.world_size) return kSegmentationFault;  // a step was repeated
                    shrunk = shrunk || start.world_size == 3;
                  }
                  return kReturn;
                }));
  whole = &run;
  run.plan().rules.warm_restart = true;
  run.plan().rules.min_workers = 2;
  run.plan().rules.max_workers = 4;
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
  std::set<int> sizes;
  for (const auto& [step, size] : world_sizes) sizes.insert(size);
  CHECK(sizes == std::set<int>{2, 3, 4});
  CHECK(run.events("resizing").size() == 2);
  // Two more for growing, none for shrinking.
  CHECK(run.engine().starts() == 4);
}

TEST_CASE("an announced preemption reaches every rank, and the next checkpoint saves all progress") {
  std::atomic<int> told = 0;
  ThreadRun run(2, lasting_workers([&](Session& session, int) -> Status {
                  if (session.start().attempt == 1) return kReturn;
                  if (session.start().world_rank == 1) session.announce_own_preemption("SIGTERM from pid 1");
                  while (!session.preemption() && !session.cancelled()) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  }
                  if (auto info = session.preemption()) {
                    told += info->why == "SIGTERM from pid 1" && info->nodes["host0"] == Value(List{1}) ? 1 : 0;
                  }
                  (void)store(session, 0);
                  (void)session.barrier().ok();
                  (void)session.store_get("never", kPatience).ok();
                  return session.start().world_rank == 1 ? Status(kEnded) : kReturn;
                }));
  run.engine().set_ranks_per_node(2);
  run.plan().rules.warm_restart = true;
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(end.attempts == 2);
  CHECK(end.checkpoint == run.plan().path + "/checkpoint_000000");
  CHECK(run.events("preemption_announced").size() == 1);
  CHECK(run.events("worker_failed").front()["cause"] == Value("preemption"));
}

TEST_CASE("a gang that does not report is detected as a hang") {
  std::atomic<bool> told = false;
  ThreadRun run(2, lasting_workers([&](Session& session, int) -> Status {
                  if (session.start().world_rank == 0) (void)session.report({{"step", 0}}).ok();
                  while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  return kReturn;
                }));
  run.plan().hang_timeout_s = 0.1;
  run.plan().heartbeat_s = 0.02;
  run.start();
  // On a busy machine the report of rank 0 may take longer, and rank 0 is reported first.
  Dict hang;
  CHECK(engine::testing::eventually([&] {
    for (const auto& event : run.events("hang_detected")) hang = event;
    return hang.contains("rank") && hang["rank"] == Value(1);
  }));
  told = true;
  CHECK(run.wait().outcome == Outcome::kFinished);
  CHECK(hang["next"] == Value("warn"));
  auto text = storage::read_file(hang["path"].as_string());
  REQUIRE(text);
  CHECK(text->find("rank 1") != std::string::npos);
}

TEST_CASE("a controller that was paused declares no rank silent or hung, and then checks again") {
  std::atomic<bool> over = false;
  ThreadRun run(2, lasting_workers([&](Session&, int) -> Status {
                  while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  return kReturn;
                }));
  tests::FakeClock clock;
  run.set_clock(clock);
  run.plan().hang_timeout_s = 5.0;
  run.plan().heartbeat_s = 0.02;
  run.plan().heartbeat_timeout_s = 1000.0;
  run.start();
  REQUIRE(run.wait_for("function_entered", 2));
  for (int pause = 0; pause < 3; ++pause) {
    clock.advance(3600.0);
    REQUIRE(clock.wait_for_readers(20));
  }
  CHECK(run.events("hang_detected").empty());
  CHECK_FALSE(run.controller().finished());
  // Awake all the time, and still no report: a hang.
  for (int i = 0; i < 5000 && run.events("hang_detected").empty(); ++i) {
    clock.advance(0.1);
    REQUIRE(clock.wait_for_readers(4));
  }
  CHECK(run.wait_for("hang_detected"));
  over = true;
  CHECK(run.wait().outcome == Outcome::kFinished);
  CHECK(run.events("hang_detected").size() == 1);
}

TEST_CASE("a rank that falls behind is reported once, however much the others report") {
  std::atomic<bool> over = false;
  ThreadRun run(2, lasting_workers([&](Session& session, int) -> Status {
                  (void)session.report({{"step", 0}}).ok();
                  while (!over) {
                    if (session.start().world_rank == 0) (void)session.report({{"step", 1}}).ok();
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  }
                  return kReturn;
                }));
  run.plan().hang_timeout_s = 2.0;  // far longer than a busy machine delays the reports of rank 0
  run.plan().heartbeat_s = 0.02;
  run.start();
  CHECK(run.wait_for("hang_detected"));
  const auto told_at = run.events("report").size();
  // After many checks.
  CHECK(engine::testing::eventually([&] { return run.events("report").size() > told_at + 300; }));
  over = true;
  CHECK(run.wait().outcome == Outcome::kFinished);
  CHECK(run.events("hang_detected").size() == 1);
}

}  // namespace controller_restart_test
