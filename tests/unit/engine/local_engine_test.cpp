#include "engine/local_engine.h"

#include <sys/wait.h>

#include <csignal>

#include "unit/engine/testing.h"

namespace local_engine_test {

using namespace trireme;
using namespace trireme::engine;
using namespace trireme::engine::testing;
using namespace std::chrono_literals;

namespace {

LocalEngineOptions options(const TempDir& folder) {
  return {.machine = {.num_cpus = {}, .num_gpus = 0, .resources = {}, .host = "here", .state_dir = folder / "state"},
          .python = {}};
}

LocalEngineOptions declared(const TempDir& folder, double cpus) {
  auto made = options(folder);
  made.machine.num_cpus = cpus;
  return made;
}

GangRequest gang(int workers, Resources bundle = {{"CPU", 1}}, const std::string& name = "run") {
  GangRequest request;
  request.run_name = name;
  request.bundles.assign(static_cast<std::size_t>(workers), bundle);
  return request;
}

GangId reserve(LocalEngine& engine, EventBook& book, const GangRequest& request) {
  const GangId id = engine.reserve(request, book.handler());
  CHECK(book.next<Reserved>().slots.size() == request.bundles.size());
  return id;
}

const ExitStatus kKilled{ExitStatus::Kind::kSignal, SIGKILL};
const ExitStatus kTerminated{ExitStatus::Kind::kSignal, SIGTERM};

}  // namespace

TEST_CASE("constructing an engine starts no thread and opens nothing") {
  const TempDir folder;
  const auto descriptors = open_descriptors();
  const auto threads = [] {
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  const auto before = threads();
  LocalEngine engine(declared(folder, 8));
  CHECK(engine.check(gang(8)).ok());
  CHECK_FALSE(engine.check(gang(9)).ok());
  CHECK(engine.nodes().front().available.at("CPU") == 8);
  engine.release(1);
  CHECK(open_descriptors() == descriptors);
  CHECK(threads() == before);
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("processes start and exit, and their bundle is free for the next one") {
  const TempDir folder;
  const auto descriptors = open_descriptors();
  {
    EventBook book;
    LocalEngine engine(options(folder));
    const GangId id = reserve(engine, book, gang(2));
    engine.start(id, 1, shell(folder.path(), "echo out; exit 3"));
    const auto started = book.next<Started>();
    CHECK(started.bundle == 1);
    CHECK_FALSE(started.forked);
    const auto exited = book.next<Exited>();
    CHECK(exited.pid == started.pid);
    CHECK(exited.bundle == 1);
    CHECK(to_string(exited.status) == "exit code 3");
    CHECK(read_text(folder / "log") == "out\n");

    engine.start(id, 1, shell(folder.path(), "exec sleep 1000"));
    const int second = book.next<Started>().pid;
    engine.start(id, 1, shell(folder.path(), "true"));
    CHECK(book.next<StartFailed>().error.message().find("already runs a process") != std::string::npos);
    engine.start(id, 2, shell(folder.path(), "true"));
    CHECK(book.next<StartFailed>().error.message().find("no bundle 2") != std::string::npos);
    auto missing = shell(folder.path(), "true");
    missing.argv = {"/no/such/program"};
    engine.start(id, 0, missing);
    CHECK(book.next<StartFailed>().error.message().starts_with("could not start rank 0: could not execute /no/such"));

    const auto seen = book.size();
    engine.release(id);
    CHECK(gone(second));
    CHECK(book.size() == seen);  // a release causes no events
    engine.start(id, 0, shell(folder.path(), "true"));
    engine.kill(id, 0, 0s);
    engine.release(id);
    CHECK(book.size() == seen);
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("kill: SIGTERM, then SIGKILL after the grace period; at once without one") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(options(folder));
  const GangId id = reserve(engine, book, gang(1));

  engine.start(id, 0, shell(folder.path(), "echo $$ > ready1; exec sleep 1000"));
  written_number(folder / "ready1");
  engine.kill(id, 0, 1000s);
  CHECK(book.next<Exited>().status == kTerminated);

  const std::string stubborn = "trap '' TERM; echo $$ > ready2; while :; do sleep 0.01; done";
  engine.start(id, 0, shell(folder.path(), stubborn));
  written_number(folder / "ready2");
  engine.kill(id, 0, 1000s);
  engine.kill(id, 0, 0.02s);  // may shorten the grace
  engine.kill(id, 0, 1000s);  // but never extends it
  CHECK(book.next<Exited>().status == kKilled);

  engine.start(id, 0, shell(folder.path(), "exec sleep 1000"));
  engine.kill(id, 0, 0s);
  CHECK(book.next<Exited>().status == kKilled);
  engine.kill(id, 0, 0s);  // the process has already exited

  // The worker may use the grace period.
  engine.start(id, 0,
               shell(folder.path(), "trap 'echo saved >> log2; exit 5' TERM; echo $$ > ready3; sleep 1000 & wait"));
  written_number(folder / "ready3");
  engine.kill(id, 0, 1000s);
  CHECK(to_string(book.next<Exited>().status) == "exit code 5");
  CHECK(read_text(folder / "log2") == "saved\n");
}

TEST_CASE("a stopped worker receives the SIGTERM") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(options(folder));
  const GangId id = reserve(engine, book, gang(1));
  engine.start(id, 0, shell(folder.path(), "trap 'exit 5' TERM; echo $$ > ready; while :; do sleep 0.01; done"));
  const int pid = written_number(folder / "ready");
  REQUIRE(::kill(pid, SIGSTOP) == 0);
  REQUIRE(eventually([&] { return read_text(fmt::format("/proc/{}/stat", pid)).find(") T ") != std::string::npos; }));
  engine.kill(id, 0, 1000s);
  CHECK(to_string(book.next<Exited>().status) == "exit code 5");

  engine.start(id, 0, shell(folder.path(), "echo $$ > ready2; exec sleep 1000"));
  REQUIRE(::kill(written_number(folder / "ready2"), SIGSTOP) == 0);
  engine.kill(id, 0, 0s);
  CHECK(book.next<Exited>().status == kKilled);
}

TEST_CASE("children of a worker do not outlive it") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(options(folder));
  const GangId id = reserve(engine, book, gang(1));
  engine.start(id, 0, shell(folder.path(), "sleep 1000 & echo $! > child; exit 0"));
  const int child = written_number(folder / "child");
  CHECK(to_string(book.next<Exited>().status) == "exit code 0");
  CHECK(eventually([&] { return gone(child); }));

  engine.start(id, 0, shell(folder.path(), "sleep 1000 & echo $! > child2; wait"));
  const int second = written_number(folder / "child2");
  engine.release(id);
  CHECK(eventually([&] { return gone(second); }));
}

TEST_CASE("two gangs share declared capacity: the second waits, reports for which run, and gets its turn") {
  const TempDir folder;
  EventBook first;
  EventBook second;
  LocalEngine engine(declared(folder, 4));
  const GangId one = reserve(engine, first, gang(3, {{"CPU", 1}}, "one"));
  auto request = gang(2, {{"CPU", 1}}, "two");
  const GangId two = engine.reserve(request, second.handler());
  CHECK(second.next<ReserveWaiting>().why ==
        fmt::format(R"(run "one" (pid {}) has {{"CPU": 3}} of {{"CPU": 4}})", ::getpid()));
  engine.release(one);
  CHECK(second.next<Reserved>().slots.size() == 2);
  CHECK(second.count<ReserveWaiting>() == 1);
  CHECK(engine.nodes().front().available.at("CPU") == 2);

  request = gang(3, {{"CPU", 1}}, "three");
  request.timeout = 0.15s;
  EventBook third;
  const GangId three = engine.reserve(request, third.handler());
  const auto failed = third.next<ReserveFailed>();
  CHECK(failed.error.message().find(R"(no room for run "three" within 150 ms: run "two" (pid )") != std::string::npos);
  engine.release(three);
  engine.release(two);
  CHECK(engine.nodes().front().available.at("CPU") == 4);

  EventBook never;
  engine.reserve(gang(5), never.handler());
  CHECK(never.next<ReserveFailed>().error.message().find("CPU: 5 needed (5 x 1), 4 available") != std::string::npos);
}

TEST_CASE("a waiting gang can be released") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(declared(folder, 1));
  const GangId one = reserve(engine, book, gang(1));
  const GangId two = engine.reserve(gang(1), book.handler());
  book.next<ReserveWaiting>();
  engine.release(two);
  engine.release(one);
  CHECK(book.count<Reserved>() == 1);
}

TEST_CASE("a state folder that is not writable fails the reservation, not the process") {
  const TempDir folder;
  std::ofstream(folder / "state") << "in the way";
  EventBook book;
  LocalEngine engine(declared(folder, 4));
  engine.reserve(gang(1), book.handler());
  CHECK(book.next<ReserveFailed>().error.message().find("TRIREME_STATE_DIR") != std::string::npos);
}

TEST_CASE("destroying the engine kills everything, including stubborn workers and their children") {
  const TempDir folder;
  const auto descriptors = open_descriptors();
  int worker = 0;
  int child = 0;
  {
    EventBook book;
    LocalEngine engine(declared(folder, 4));
    const GangId id = reserve(engine, book, gang(1));
    engine.start(id, 0, shell(folder.path(), "trap '' TERM; sleep 1000 & echo $! > child; while :; do sleep 1; done"));
    worker = book.next<Started>().pid;
    child = written_number(folder / "child");
  }
  CHECK(gone(worker));
  CHECK(eventually([&] { return gone(child); }));
  CHECK(open_descriptors() == descriptors);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(LocalEngine(declared(folder, 4)).nodes().front().available.at("CPU") == 4);
}

TEST_CASE("a forked copy of the driver drops the engine without side effects") {
  const TempDir folder;
  EventBook book;
  auto engine = std::make_unique<LocalEngine>(declared(folder, 4));
  const GangId id = reserve(*engine, book, gang(1));
  engine->start(id, 0, shell(folder.path(), "exec sleep 1000"));
  const int worker = book.next<Started>().pid;
  const pid_t copy = ::fork();
  if (copy == 0) {
    engine->release(id);
    engine.reset();
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(copy, &status, 0) == copy);
  CHECK(status == 0);
  CHECK_FALSE(gone(worker));
  CHECK(engine->nodes().front().available.at("CPU") == 3);
  engine->release(id);
  CHECK(gone(worker));
}

TEST_CASE("many workers at once") {
  const TempDir folder;
  constexpr int kWorkers = 40;
  EventBook book;
  LocalEngine engine(options(folder));
  const GangId id = reserve(engine, book, gang(kWorkers));
  for (int i = 0; i < kWorkers; ++i) engine.start(id, i, shell(folder.path(), fmt::format("exit {}", i)));
  for (int i = 0; i < kWorkers; ++i) {
    const auto exited = book.next<Exited>();
    CHECK(exited.status == ExitStatus{ExitStatus::Kind::kCode, exited.bundle});
  }
}

}  // namespace local_engine_test
