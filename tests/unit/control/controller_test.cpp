#include "control/controller.h"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <set>

#include "storage/remote_files.h"
#include "unit/control/thread_run.h"
#include "unit/storage/fake_store.h"

namespace controller_test {

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;
using engine::testing::eventually;
using worker::Session;

namespace {

using Status = std::optional<engine::ExitStatus>;
constexpr std::nullopt_t kReturn = std::nullopt;

}  // namespace

TEST_CASE("ranks report, share a store, meet, and return") {
  constexpr int kRanks = 4;
  std::atomic<int> problems = 0;
  auto expect = [&](bool holds) { problems += holds ? 0 : 1; };
  ThreadRun run(
      kRanks, workers([&](Session& session) -> Status {
        const auto& start = session.start();
        expect(start.world_size == kRanks && start.payload == Bytes{"payload"});
        expect(start.node_rank == start.world_rank / 2 && start.local_rank == start.world_rank % 2 &&
               start.num_nodes == 2);
        expect(start.local_world_size == 2);
        expect(start.next_report == 0 && !start.checkpoint && start.attempt == 0);
        // Each waits for the key of the previous rank.
        const std::string mine = "key" + std::to_string(start.world_rank);
        const std::string before = "key" + std::to_string((start.world_rank + kRanks - 1) % kRanks);
        expect(session.store_set(mine, "from " + mine).ok());
        auto got = session.store_get(before, kPatience);
        expect(got && *got == "from " + before);
        expect(session.store_add("sum", start.world_rank).ok());
        expect(session.barrier().ok());
        auto sum = session.store_add("sum", 0);
        expect(sum && *sum == 0 + 1 + 2 + 3);
        auto count = session.store_count();
        expect(count && *count == kRanks + 1);
        auto data = session.broadcast(start.world_rank == 0 ? std::optional<std::string>("from rank 0") : std::nullopt);
        expect(data && *data == "from rank 0");
        for (int i = 0; i < 3; ++i) expect(session.report({{"step", i}, {"rank", start.world_rank}}).ok());
        return kReturn;
      }));
  run.engine().set_ranks_per_node(2);
  RunEnd end = run.go();
  CHECK(problems == 0);
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(end.error == "");
  CHECK(end.return_value == ReturnValue{"value of 0"});
  CHECK(end.metrics == Metrics{{"step", 2}, {"rank", 0}});
  CHECK(end.reports == 3);
  CHECK(end.attempts == 1);
  CHECK(end.failures.empty());
  CHECK(run.controller().refused_peers() == 0);

  const auto logged = run.logged();
  CHECK(logged == run.events());
  CHECK(logged.front()["event"] == Value("run_started"));
  CHECK(logged.back()["event"] == Value("run_finished"));
  for (const char* kind : {"worker_started", "worker_connected", "function_entered", "worker_finished"}) {
    CHECK(run.events(kind).size() == kRanks);
  }
  CHECK(run.events("attempt_started").size() == 1);
  CHECK(run.events("training_started").size() == 1);
  std::map<std::int64_t, std::int64_t> next;
  double time = 0;
  for (const auto& event : logged) {
    CHECK(event["time"].as_double() >= time);
    time = event["time"].as_double();
    if (event["event"] == Value("report")) CHECK(event["index"].as_int() == next[event["rank"].as_int()]++);
  }
}

TEST_CASE("a barrier with a rank that has finished is an error, not a wait") {
  std::mutex mutex;
  std::map<int, std::string> errors;
  ThreadRun run(3, workers([&](Session& session) -> Status {
                  if (session.start().world_rank == 1) return kReturn;
                  auto met = session.barrier();
                  const std::lock_guard lock(mutex);
                  errors[session.start().world_rank] = met ? "met" : met.error().message();
                  return kReturn;
                }));
  CHECK(run.go().outcome == Outcome::kFinished);
  // Which rank is named depends on the order: rank 0 may have finished when rank 2 arrives.
  for (int rank : {0, 2}) CHECK(errors[rank].find("finished its training function") != std::string::npos);
}

TEST_CASE("a rank that raises ends the run with its error") {
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  if (session.start().world_rank == 1) return raise(session, "boom");
                  (void)session.store_get("never", kPatience).ok();
                  return kFailedExit;
                }));
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFailed);
  CHECK(end.error.find("failed: ValueError: boom") != std::string::npos);
  REQUIRE_FALSE(end.failures.empty());
  const Failure& first = end.failures.front();
  CHECK(first.rank == 1);
  CHECK(first.cause == "exception");
  CHECK(first.traceback == "Traceback");
  CHECK(first.log_tail == std::vector<std::string>{"last line of " + log_path(run.plan().path, 0, 1)});
  const Dict failed = run.events("worker_failed").front();
  CHECK(failed["message"] == Value("boom"));
  CHECK(failed["collateral"] == Value(false));
  CHECK(failed["log_tail"] == Value(List{first.log_tail.front()}));
  CHECK(run.logged().back()["outcome"] == Value("failed"));
}

TEST_CASE("a rank that dies is the cause, not those that wait for it") {
  ThreadRun run(3, workers([&](Session& session) -> Status {
                  if (session.start().world_rank == 2) return kSegmentationFault;
                  (void)session.barrier().ok();
                  return kFailedExit;
                }));
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFailed);
  REQUIRE(end.failures.size() == 1);
  CHECK(end.failures[0].rank == 2);
  CHECK(end.failures[0].cause == "signal");
  CHECK(end.error.find("signal SIGSEGV (11)") != std::string::npos);
}

TEST_CASE("a gang restarts from its newest checkpoint") {
  std::mutex mutex;
  std::set<std::string> seen;
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  const auto& start = session.start();
                  {
                    const std::lock_guard lock(mutex);
                    seen.insert(fmt::format("{}/{}: {} {}", start.attempt, start.world_rank, start.next_report,
                                            start.checkpoint.value_or("-")));
                  }
                  for (std::int64_t index = start.next_report; index < start.next_report + 2; ++index) {
                    auto stored = session.report({{"index", index}}, part_of(session));
                    if (!stored || !*stored) return kFailedExit;
                  }
                  // Messages sent before a barrier have been handled after it: both commits are in progress.
                  if (!session.barrier()) return kFailedExit;
                  if (start.attempt == 0) {
                    if (!session.report({{"lost", true}})) return kFailedExit;
                    if (start.world_rank == 0) return kSegmentationFault;
                    (void)session.store_get("never", kPatience).ok();
                    return kFailedExit;
                  }
                  return kReturn;
                }));
  run.plan().rules.max_failures = 1;
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(end.attempts == 2);
  const std::string path = run.plan().path;
  CHECK(end.checkpoint == path + "/checkpoint_000003");
  CHECK(seen == std::set<std::string>{"0/0: 0 -", "0/1: 0 -", fmt::format("1/0: 2 {}/checkpoint_000001", path),
                                      fmt::format("1/1: 2 {}/checkpoint_000001", path)});
  std::vector<std::string> committed;
  for (const auto& event : run.events("checkpoint_committed")) committed.push_back(event["name"].as_string());
  CHECK(committed ==
        std::vector<std::string>{"checkpoint_000000", "checkpoint_000001", "checkpoint_000002", "checkpoint_000003"});
  for (const char* file : {"rank_0", "rank_1"}) CHECK(std::filesystem::exists(path + "/checkpoint_000003/" + file));
  CHECK(run.events("attempt_failed").front()["next"] == Value("restart"));
  CHECK(std::filesystem::is_directory(path + "/logs/attempt_1"));
}

TEST_CASE("a restart clears the store and the barriers") {
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  const auto& start = session.start();
                  if (start.attempt == 0) {
                    if (!session.store_set("old", "1")) return kFailedExit;
                    if (start.world_rank == 1) return kSegmentationFault;
                    (void)session.barrier().ok();
                    return kFailedExit;
                  }
                  auto count = session.store_count();
                  if (!count || *count != 0 || !session.barrier())
                    return raise(session, "something is left of the first attempt");
                  return kReturn;
                }));
  run.plan().rules.max_failures = 1;
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
}

TEST_CASE("a checkpoint that cannot be committed fails the run, also at its end") {
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  const auto& start = session.start();
                  if (start.world_rank == 0 && !session.report({{"step", 0}}, part_of(session))) return kFailedExit;
                  if (!session.barrier()) return kFailedExit;
                  // Rank 1 has no report: the checkpoint becomes complete when it returns, but its files are deleted by
                  // then.
                  if (start.world_rank == 1) std::filesystem::remove_all(start.path + "/checkpoint_000000");
                  return kReturn;
                }));
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFailed);
  CHECK(end.error.find("could not store the checkpoint of report 0") != std::string::npos);
  CHECK_FALSE(end.checkpoint);
  CHECK(run.events("worker_failed").size() == 1);
}

TEST_CASE("a gang that does not start") {
  SUBCASE("a process that cannot be started") {
    ThreadRun run(2, workers([](Session&) -> Status { return kReturn; }));
    run.engine().refuse_start_of(1);
    RunEnd end = run.go();
    CHECK(end.outcome == Outcome::kFailed);
    CHECK(end.error.find("rank 1 could not be started: refused by the test") != std::string::npos);
    CHECK(end.attempts == 1);
  }
  SUBCASE("a process that does not connect") {
    ThreadRun run(2, [](const RankProcess& process) {
      while (!process.killed.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return kFailedExit;
    });
    run.plan().rules.start_timeout_s = 0.05;
    run.plan().rules.start_limit = 2;
    RunEnd end = run.go();
    CHECK(end.outcome == Outcome::kFailed);
    CHECK(end.error.find("rank 0-1 did not connect within 0.05 s") != std::string::npos);
    CHECK(end.attempts == 3);
  }
  SUBCASE("a process that ends before it connects") {
    ThreadRun run(1, [](const RankProcess&) { return kFailedExit; });
    run.plan().rules.start_limit = 1;
    RunEnd end = run.go();
    CHECK(end.failures.front().cause == "start");
    CHECK(end.attempts == 2);
  }
}

TEST_CASE("storage that does not respond delays the start, and nothing else") {
  std::promise<void> gate;
  std::atomic<bool> settling = false;
  std::atomic<bool> began_settled = true;
  ThreadRun run(2, workers([&](Session&) -> Status {
                  if (settling) began_settled = false;
                  return kReturn;
                }));
  auto store = std::make_shared<tests::FakeStore>();
  store->before = [&, open = gate.get_future().share()](const std::string& call, const std::string&) {
    if (call != "list_folders") return;
    settling = true;
    open.wait();
    settling = false;
  };
  run.plan().files = std::make_shared<storage::RemoteFiles>(store, "far");
  run.plan().storage_path = "bucket/run";
  run.start();
  REQUIRE(run.wait_for("worker_connected", 2));
  REQUIRE(eventually([&] { return settling.load(); }));
  // The controller's thread still answers, and so handles heartbeats.
  wire::GetStacks request;
  request.id = 1;
  auto reply =
      wire::ask(run.controller().address().text(), run.plan().secret, run.plan().id, request, std::chrono::seconds(60));
  REQUIRE(reply);
  CHECK(reply->failure.value_or("").find("the run is starting") != std::string::npos);
  CHECK(run.events("training_started").empty());
  gate.set_value();
  CHECK(run.wait().outcome == Outcome::kFinished);
  CHECK(began_settled);
}

TEST_CASE("a folder that is not writable is reported at the start") {
  ThreadRun run(1, workers([](Session&) -> Status { return kReturn; }));
  base::SystemClock clock;
  RunPlan plan = run.plan();
  plan.path = run.dir() / "absent";
  Controller controller(plan, run.engine(), clock, [](const Dict&) {});
  auto started = controller.start();
  REQUIRE_FALSE(started);
  CHECK(started.error().message().find("absent/events.jsonl") != std::string::npos);
}

TEST_CASE("stopping a run") {
  std::atomic<int> inside = 0;
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  ++inside;
                  (void)session.store_get("never", kPatience).ok();
                  return kFailedExit;
                }));
  run.start();
  REQUIRE(eventually([&] { return inside == 2; }));
  const std::string address = run.controller().address().text();
  SUBCASE("by the driver") {
    run.controller().stop("ctrl-c", false);
    CHECK(run.wait().error == "stopped: ctrl-c");
    CHECK(run.events("stop_requested").front()["hard"] == Value(false));
  }
  SUBCASE("by the command line") {
    wire::StopRun request;
    request.id = 5;
    request.why = "trireme stop";
    request.hard = true;
    CHECK_FALSE(wire::ask(address, wire::random_bytes(32), run.plan().id, request));
    CHECK_FALSE(wire::ask(address, run.plan().secret, "another run", request));
    CHECK_FALSE(run.controller().finished());
    // A message that clients must not send closes the connection and has no other effect.
    CHECK_FALSE(wire::ask(address, run.plan().secret, run.plan().id, wire::Entered{}));
    auto reply = wire::ask(address, run.plan().secret, run.plan().id, request);
    REQUIRE(reply);
    CHECK(reply->id == 5);
    CHECK(reply->value == Value(true));
    CHECK(run.wait().error == "stopped: trireme stop");
    CHECK(run.events("stop_requested").front()["hard"] == Value(true));
  }
  SUBCASE("by destroying the controller") {
    run.abandon();
    CHECK(run.logged().back()["outcome"] == Value("stopped"));
    CHECK(run.logged().back()["error"] == Value("stopped: the run was abandoned"));
    return;
  }
  CHECK(run.wait().outcome == Outcome::kStopped);
  CHECK(run.logged().back()["outcome"] == Value("stopped"));
}

TEST_CASE("a table of metrics that cannot be written does not end the run") {
  ThreadRun run(1, workers([](Session& session) -> Status {
                  return session.report({{"loss", 1}}) ? Status() : Status(kFailedExit);
                }));
  std::filesystem::create_directories(run.dir() / "metrics.csv");
  CHECK(run.go().outcome == Outcome::kFinished);
  const auto warnings = run.events("warning");
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0]["message"].as_string().find("the run continues without metrics.csv") == 0);
  CHECK(run.events("report").size() == 1);
}

TEST_CASE("warnings are written to the log") {
  ThreadRun run(1, workers([](Session& session) -> Status {
                  (void)session.store_get("go", kPatience).ok();
                  return kReturn;
                }));
  run.start();
  run.controller().warn("two workers share a CPU");
  REQUIRE(run.wait_for("warning"));
  CHECK(run.events("warning").front()["message"] == Value("two workers share a CPU"));
  run.controller().stop("enough", true);
  run.wait();
}

TEST_CASE("thousands of reports") {
  constexpr int kReports = 6000;
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  for (int i = 0; i < kReports; ++i) {
                    if (!session.report({{"step", i}})) return kFailedExit;
                  }
                  return kReturn;
                }));
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(end.reports == kReports);
  int logged = 0;
  for (const auto& event : run.logged()) logged += event["event"] == Value("report") ? 1 : 0;
  CHECK(logged == 2 * kReports);
}

TEST_CASE("a large payload and a large return value") {
  const std::string large = wire::random_bytes(12 << 20);
  ThreadRun run(2, [&](const RankProcess& process) -> engine::ExitStatus {
    auto session = join_as(process);
    if (!session || !(*session)->wait_start()) return kFailedExit;
    return (*session)->finish((*session)->start().payload, true) ? kEnded : kFailedExit;
  });
  run.plan().payload = Bytes{large};
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFinished);
  REQUIRE(end.return_value.value.get_if<Bytes>());
  CHECK((end.return_value.value.as_bytes().data == large));
  CHECK(end.return_value.pickled);
  CHECK((storage::read_file(run.dir() / "return_value.pkl").value() == large));
}

}  // namespace controller_test
