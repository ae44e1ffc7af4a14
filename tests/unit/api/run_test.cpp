#include "api/run.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/dict_fields.h"
#include "base/json.h"
#include "base/lock_file.h"
#include "control/run_folder.h"
#include "storage/local_files.h"
#include "storage/open_files.h"
#include "unit/engine/testing.h"
#include "unit/environment.h"
#include "unit/folder_file_system.h"
#include "unit/temp_dir.h"
#include "worker/session.h"

namespace run_test {

// Complete runs with real worker processes: each worker is this program, running the test case below.

using namespace trireme;
using namespace trireme::api;
using base::int_of;
using base::text_of;
using control::Outcome;
using tests::append_file;
using tests::Environment;
using tests::TempDir;
namespace fs = std::filesystem;

namespace {

constexpr const char* kWorker = "the worker process of run_test";

// Makes far://bucket/run a folder behind the interface for custom storage. Workers use it too.
void register_far() {
  register_filesystem("far", [](const std::string&) {
    return std::make_shared<tests::FolderFileSystem>(std::getenv("TRIREME_TEST_FAR"));
  });
}

// A separate state and results folder, to leave the user's own untouched.
struct Desk {
  TempDir dir;
  Environment state{"TRIREME_STATE_DIR", dir / "state"};
  Environment results{"TRIREME_RESULTS", dir / "results"};
  Environment far{"TRIREME_TEST_FAR", dir / "far"};
  Runtime runtime{{}};

  RunSpec spec(const std::string& what, int num_workers, std::optional<std::string> name = "digits") {
    RunSpec spec;
    spec.trainer = "TestTrainer";
    spec.scaling.num_workers = num_workers;
    spec.run.name = std::move(name);
    spec.run.stop_grace_s = 0.5;
    spec.payload = Bytes{what};
    spec.argv = {fs::read_symlink("/proc/self/exe"), "--no-skip", std::string("--test-case=") + kWorker};
    spec.env = {{"PATH", "/usr/bin:/bin"}, {"TRIREME_TEST_FAR", dir / "far"}};
    spec.cwd = dir.path();
    return spec;
  }

  std::unique_ptr<Run> prepare(RunSpec spec) {
    auto run = Run::prepare(runtime, std::move(spec));
    REQUIRE_MESSAGE(run, (run ? "" : run.error().message()));
    return *std::move(run);
  }
  control::RunEnd finish(RunSpec spec);
  std::string refusal(RunSpec spec) {
    auto run = Run::prepare(runtime, std::move(spec));
    REQUIRE_FALSE(run);
    return run.error().message();
  }
};

std::vector<Dict> pump(
    Run& run, const std::function<void(const Dict&)>& look = [](const Dict&) {}) {
  std::vector<Dict> all;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!run.finished() && std::chrono::steady_clock::now() < deadline) {
    for (auto& event : run.next(base::Seconds(0.1))) {
      look(event);
      all.push_back(std::move(event));
    }
  }
  REQUIRE(run.finished());
  return all;
}

// Starts the run and waits for its end.
control::RunEnd Desk::finish(RunSpec spec) {
  auto run = prepare(std::move(spec));
  REQUIRE(run->start());
  pump(*run);
  auto end = run->wait();
  REQUIRE(end.error == "");
  return end;
}

int count(const std::vector<Dict>& events, const std::string& kind) {
  return static_cast<int>(
      std::count_if(events.begin(), events.end(), [&](const Dict& event) { return text_of(event, "event") == kind; }));
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(kWorker* doctest::skip()) {
  const char* fd = std::getenv("TRIREME_TICKET_FD");
  REQUIRE(fd);
  auto ticket = storage::read_file(std::string("/proc/self/fd/") + fd);
  REQUIRE(ticket);
  register_far();
  auto session = worker::Session::join(*worker::parse_ticket(*ticket));
  REQUIRE(session);
  auto start = (*session)->wait_start();
  REQUIRE(start);
  (*session)->entered();
  const std::string what = start->payload.data;
  const std::string here = start->path + "/mine_" + std::to_string(start->world_rank);
  if (what == "sleep") ::sleep(1000);
  if (what == "die" && start->world_rank == 1) ::raise(SIGKILL);
  if (what == "die once" && start->world_rank == 1 && start->attempt % 2 == 0) ::_exit(3);
  if (what == "raise" && start->world_rank == 1) {
    std::printf("about to raise\n");
    std::fflush(stdout);
    wire::Failed failure;
    failure.error_type = "std::runtime_error";
    failure.message = "boom";
    (*session)->fail(failure);
    ::_exit(1);
  }
  if (start->world_rank == 0) std::printf("hello from rank 0, OMP_NUM_THREADS=%s\n", std::getenv("OMP_NUM_THREADS"));
  std::fflush(stdout);
  // No rank gets past this point if another one dies.
  REQUIRE((*session)->barrier());
  fs::remove_all(here);
  append_file(here + "/weights", "w");
  REQUIRE((*session)->report({{"attempt", start->attempt}}, worker::CheckpointSource{.folder = here}));
  REQUIRE((*session)->finish("value", false));
  ::_exit(0);
}

TEST_CASE("a run with real processes") {
  Desk desk;
  auto spec = desk.spec("report", 2);
  spec.metadata = {{"who", "me"}};
  spec.env["OMP_NUM_THREADS"] = "3";
  auto run = desk.prepare(std::move(spec));
  CHECK(run->name() == "digits");
  CHECK(run->path() == desk.dir / "results/digits");
  auto file = control::read_run_file(run->path());
  REQUIRE(file);
  CHECK((*file)["scaling_config"]["num_workers"] == Value(2));
  CHECK((*file)["metadata"]["who"] == Value("me"));

  REQUIRE(run->start());
  control::RunRegistry registry;
  auto entry = registry.find_run("digits");
  REQUIRE(entry);
  CHECK(entry->secret);
  CHECK(control::is_active(*entry));
  // The folder is in use during the run.
  CHECK(says(desk.refusal(desk.spec("report", 1)), "run 'digits' is already running"));

  auto events = pump(*run);
  auto end = run->wait();
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(end.return_value == control::ReturnValue{"value"});
  CHECK(end.checkpoint == run->path() + "/checkpoint_000000");
  CHECK(count(events, "report") == 2);
  CHECK(count(events, "run_finished") == 1);
  int lines = 0;
  for (const auto& event : events) {
    // The test framework prints lines too.
    lines += text_of(event, "line") == "hello from rank 0, OMP_NUM_THREADS=3" ? 1 : 0;
    if (text_of(event, "event") == "worker_started") CHECK(int_of(event, "pid") > 0);
  }
  CHECK(lines == 1);
  CHECK(run->next(base::Seconds(0)).empty());
  run->close();
  entry = registry.find_run("digits");
  REQUIRE(entry);
  CHECK_FALSE(entry->secret);
  CHECK_FALSE(control::is_active(*entry));
}

// As a process that the driver was starting when it was killed: it holds the lock until it executes its program.
TEST_CASE("the lock of a driver that has ended is waited for") {
  Desk desk;
  const std::string folder = desk.dir / "results/digits";
  fs::create_directories(folder);
  base::LockFile left(base::Fd(::open((folder + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
  REQUIRE(left.lock(LOCK_EX | LOCK_NB));
  std::jthread executes([&left] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    left.reset();
  });
  CHECK(desk.prepare(desk.spec("report", 1))->name() == "digits");
}

TEST_CASE("a worker that is killed, one that raises, one that restarts") {
  Desk desk;
  SUBCASE("killed") {
    auto run = desk.prepare(desk.spec("die", 2));
    REQUIRE(run->start());
    auto events = pump(*run);
    auto end = run->wait();
    CHECK(end.outcome == Outcome::kFailed);
    CHECK(says(end.error, "signal SIGKILL (9)"));
    REQUIRE_FALSE(end.failures.empty());
    CHECK(end.failures[0].rank == 1);
    CHECK(count(events, "attempt_failed") == 1);
  }
  SUBCASE("raised") {
    auto run = desk.prepare(desk.spec("raise", 2));
    REQUIRE(run->start());
    pump(*run);
    auto end = run->wait();
    CHECK(says(end.error, "rank 1 (pid "));
    CHECK(says(end.error, "failed: std::runtime_error: boom"));
    REQUIRE_FALSE(end.failures.empty());
    CHECK(says(base::join(end.failures[0].log_tail, "\n"), "about to raise"));
  }
  SUBCASE("restarted") {
    auto spec = desk.spec("die once", 2);
    spec.run.failure_config.max_failures = 1;
    auto run = desk.prepare(std::move(spec));
    REQUIRE(run->start());
    auto events = pump(*run);
    auto end = run->wait();
    CHECK(end.outcome == Outcome::kFinished);
    CHECK(end.attempts == 2);
    CHECK(end.metrics == Metrics{{"attempt", 1}});
    CHECK(count(events, "attempt_started") == 2);
    CHECK(control::log_files(run->path()).size() == 4);
  }
}

TEST_CASE("the same name continues the run") {
  Desk desk;
  desk.finish(desk.spec("report", 2));
  auto run = desk.prepare(desk.spec("report", 1));
  REQUIRE(run->start());
  auto events = pump(*run);
  auto end = run->wait();
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(end.attempts == 1);
  CHECK(end.last_attempt == 1);
  CHECK(end.checkpoint == run->path() + "/checkpoint_000001");
  CHECK(events.front()["resumed"] == Value(true));
  auto record = control::read_run(run->path());
  REQUIRE(record);
  CHECK(count(record->events, "run_finished") == 2);
}

TEST_CASE("stopping and leaving a run") {
  Desk desk;
  auto run = desk.prepare(desk.spec("sleep", 2));
  REQUIRE(run->start());
  std::vector<int> pids;
  int entered = 0;
  auto look = [&](const Dict& event) {
    if (text_of(event, "event") == "worker_started") pids.push_back(static_cast<int>(int_of(event, "pid")));
    if (text_of(event, "event") == "function_entered" && ++entered == 2) run->stop("enough", false);
  };
  SUBCASE("stopped") {
    pump(*run, look);
    auto end = run->wait();
    CHECK(end.outcome == Outcome::kStopped);
    CHECK(end.error == "stopped: enough");
  }
  SUBCASE("left") {
    while (pids.size() < 2) {
      for (const auto& event : run->next(base::Seconds(0.1))) look(event);
    }
    run.reset();
    auto record = control::read_run(desk.dir / "results/digits");
    REQUIRE(record);
    CHECK(text_of(record->events.back(), "outcome") == "stopped");
  }
  REQUIRE(pids.size() == 2);
  for (int pid : pids) CHECK(engine::testing::gone(pid));
}

TEST_CASE("invalid configurations are refused before anything starts") {
  Desk desk;
  auto spec = desk.spec("report", 1);
  spec.scaling.placement_strategy = "NONE";
  CHECK(says(desk.refusal(spec), "ScalingConfig.placement_strategy = 'NONE'"));
  spec = desk.spec("report", 1, "../up");
  CHECK(says(desk.refusal(spec), "RunConfig.name = '../up'"));
  spec = desk.spec("report", 1);
  spec.run.storage_path = "s3://bucket/x";
  CHECK(says(desk.refusal(spec), "this program has no file system for 's3'; link trireme::data"));
  append_file(desk.dir / "file", "in the way");
  spec.run.storage_path = desk.dir / "file";
  CHECK(says(desk.refusal(spec), desk.dir / "file"));
  spec = desk.spec("report", 1);
  spec.scaling.resources_per_worker = Resources{{"license", 1}};
  CHECK(says(desk.refusal(spec), "license"));
  spec = desk.spec("report", 1);
  spec.run.checkpoint_config.checkpoint_frequency = 2;
  CHECK(says(desk.refusal(spec), "CheckpointConfig.checkpoint_frequency is for trainers with their own training loop"));
  spec = desk.spec("report", 1);
  spec.resume_from_checkpoint = desk.dir / "absent";
  CHECK(says(desk.refusal(spec), "resume_from_checkpoint = '" + (desk.dir / "absent") + "': there is no such folder"));
}

TEST_CASE("resume controls whether a run of the same name is continued") {
  Desk desk;
  auto spec = desk.spec("report", 1);
  spec.run.resume = "must";
  CHECK(says(desk.refusal(spec),
             "RunConfig.resume = 'must': there is no run 'digits' to continue in " + (desk.dir / "results/digits")));
  spec.run.resume = "never";
  desk.finish(spec);
  CHECK(says(desk.refusal(spec),
             "RunConfig.resume = 'never': there is a run 'digits' in " + (desk.dir / "results/digits")));
  spec.run.resume = "must";
  CHECK(desk.finish(spec).checkpoint == desk.dir / "results/digits/checkpoint_000001");
}

TEST_CASE("a run continues from the newest intact checkpoint") {
  Desk desk;
  for (int i = 0; i < 3; ++i) desk.finish(desk.spec("report", 1));
  const std::string path = desk.dir / "results/digits";
  const std::string weights = path + "/checkpoint_000002/weights";
  std::string why;
  auto spec = desk.spec("report", 1);
  SUBCASE("a changed file") {
    fs::remove(weights);
    append_file(weights, "x");
    why = "checkpoint_000002 is damaged (";
  }
  SUBCASE("a missing file, even if checksums are not compared") {
    fs::remove(weights);
    spec.run.checkpoint_config.verify_on_resume = false;
    why = "checkpoint_000002 is damaged (";
  }
  SUBCASE("an unreadable manifest") {
    fs::remove(path + "/checkpoint_000002/.trireme_manifest.json");
    append_file(path + "/checkpoint_000002/.trireme_manifest.json", "{");
    why = "checkpoint_000002";
  }
  auto run = desk.prepare(std::move(spec));
  REQUIRE(run->start());
  auto events = pump(*run);
  CHECK(events.front()["checkpoint"] == Value(path + "/checkpoint_000001"));
  std::string warned;
  for (const auto& event : events) {
    if (text_of(event, "event") == "warning" && warned.empty()) warned = text_of(event, "message");
  }
  CHECK(says(warned, why));
  // It reached report 2 again and committed an intact checkpoint.
  auto end = run->wait();
  CHECK(end.error == "");
  CHECK(end.checkpoint == path + "/checkpoint_000002");
  CHECK(storage::read_file(weights).value() == "w");
  CHECK(end.checkpoints.size() == 3);
}

TEST_CASE("a run starts from resume_from_checkpoint until it has its own checkpoint") {
  Desk desk;
  append_file(desk.dir / "given/weights", "w");
  auto spec = desk.spec("report", 1);
  spec.resume_from_checkpoint = desk.dir / "given";
  {
    auto run = desk.prepare(spec);
    REQUIRE(run->start());
    CHECK(pump(*run).front()["checkpoint"] == Value(desk.dir / "given"));
  }
  auto run = desk.prepare(spec);
  REQUIRE(run->start());
  CHECK(pump(*run).front()["checkpoint"] == Value(desk.dir / "results/digits/checkpoint_000000"));
}

TEST_CASE("a run with remote storage") {
  Desk desk;
  register_far();
  auto spec = desk.spec("report", 2);
  spec.run.storage_path = "far://bucket/runs";
  const std::string far = desk.dir / "far/bucket/runs/digits";
  {
    auto run = desk.prepare(spec);
    CHECK(run->storage_path() == "bucket/runs/digits");
    CHECK(run->storage_uri() == "far://bucket/runs/digits");
    CHECK(run->path().find(desk.dir / "state") == 0);
    CHECK(fs::exists(far + "/.trireme_lease.json"));
    REQUIRE(run->start());
    auto events = pump(*run);
    auto end = run->wait();
    CHECK(end.error == "");
    CHECK(end.checkpoint == "bucket/runs/digits/checkpoint_000000");
    CHECK(events.front()["storage"] == Value("far://bucket/runs/digits"));
  }
  for (const char* name : {"/run.json", "/events.jsonl", "/metrics.csv", "/logs/attempt_0/rank_1.log",
                           "/checkpoint_000000/.trireme_manifest.json"}) {
    CAPTURE(name);
    CHECK(fs::exists(far + name));
  }
  CHECK_FALSE(fs::exists(far + "/.trireme_lease.json"));
  std::string path;
  auto files = storage::open_files("far://bucket/runs/digits", path);
  REQUIRE(files);
  CHECK(control::summary(*control::read_run(**files, path), false, 0).state == "finished");

  // As on another machine, without local files of the run.
  fs::remove_all(desk.dir / "state/mirror");
  auto run = desk.prepare(spec);
  REQUIRE(run->start());
  auto events = pump(*run);
  auto end = run->wait();
  CHECK(end.error == "");
  CHECK(events.front()["resumed"] == Value(true));
  CHECK(end.last_attempt == 1);
  CHECK(end.checkpoint == "bucket/runs/digits/checkpoint_000001");
  run->close();
  auto record = control::read_run(**files, path);
  REQUIRE(record);
  CHECK(count(record->events, "run_finished") == 2);
}

TEST_CASE("runs without a name get a unique one, storage may be a file URL") {
  Desk desk;
  auto first = desk.prepare(desk.spec("report", 1, std::nullopt));
  auto second = desk.prepare(desk.spec("report", 1, std::nullopt));
  CHECK(first->name().starts_with("trireme_run-"));
  CHECK(first->path() != second->path());
  CHECK(first->id() != second->id());
  auto spec = desk.spec("report", 1);
  spec.run.storage_path = "file://" + (desk.dir / "elsewhere");
  CHECK(desk.prepare(spec)->path() == desk.dir / "elsewhere/digits");
}

}  // namespace run_test
