#include "engine/zygote.h"

#include <sys/wait.h>

#include <csignal>

#include "engine/local_engine.h"
#include "unit/engine/testing.h"

namespace zygote_test {

using namespace trireme;
using namespace trireme::engine;
using namespace trireme::engine::testing;
using namespace std::chrono_literals;

namespace {

const std::string kFake = TRIREME_TEST_FOLDER "/unit/engine/fake_zygote.py";

LocalEngineOptions with_python(const TempDir& folder) {
  return {.machine = {.num_cpus = {}, .num_gpus = 0, .resources = {}, .host = "here", .state_dir = folder / "state"},
          .python = {"python3", kFake}};
}

// A forked worker runs its ticket, an executed one its argv.
ProcessSpec worker(const fs::path& folder, const std::string& script, const std::string& mode = "") {
  auto spec = shell(folder, script);
  spec.ticket = script;
  spec.python = PythonStart{.preload = {"json", "missing"}, .sys_path = {}, .argv = {"script.py"}};
  if (!mode.empty()) spec.env["FAKE_ZYGOTE"] = mode;
  return spec;
}

GangId reserve(LocalEngine& engine, EventBook& book, int workers) {
  GangRequest request;
  request.run_name = "run";
  request.bundles.assign(static_cast<std::size_t>(workers), {{"CPU", 1}});
  const GangId id = engine.reserve(request, book.handler());
  book.next<Reserved>();
  return id;
}

int parent_of(int pid) {
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  return std::stoi(stat.substr(stat.rfind(')') + 4));
}

}  // namespace

TEST_CASE("workers are forked from the warm process, which reports how they end") {
  const TempDir folder;
  const auto descriptors = open_descriptors();
  {
    EventBook book;
    LocalEngine engine(with_python(folder));
    engine.warm_up({"json"});
    const GangId id = reserve(engine, book, 3);
    auto spec = worker(folder.path(), "echo $GREETING; pwd; exit 3");
    spec.env["GREETING"] = "grüße";
    engine.start(id, 0, spec);
    const auto started = book.next<Started>();
    CHECK(started.forked);
    const auto exited = book.next<Exited>();
    CHECK(exited.pid == started.pid);
    CHECK(to_string(exited.status) == "exit code 3");
    CHECK(read_text(folder / "log") == "grüße\n" + fs::canonical(folder.path()).string() + "\n");

    engine.start(id, 1, worker(folder.path(), "kill -SEGV $$"));
    CHECK(to_string(book.next<Exited>().status) == "signal SIGSEGV (11)");

    engine.start(id, 2, worker(folder.path(), "sleep 1000 & echo $! > child; exit 0"));
    const int child = written_number(folder / "child");
    CHECK(to_string(book.next<Exited>().status) == "exit code 0");
    CHECK(eventually([&] { return gone(child); }));

    engine.start(id, 0, worker(folder.path(), "echo $$ > ready; exec sleep 1000"));
    written_number(folder / "ready");
    engine.kill(id, 0, 1000s);
    CHECK(to_string(book.next<Exited>().status) == "signal SIGTERM (15)");

    engine.start(id, 0,
                 worker(folder.path(), "trap '' TERM; sleep 1000 & echo $! > child2; while :; do sleep 1; done"));
    const int pid = book.next<Started>().pid;
    const int second = written_number(folder / "child2");
    engine.release(id);
    CHECK(gone(pid));
    CHECK(eventually([&] { return gone(second); }));
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("if anything is wrong with the zygote, workers are executed instead") {
  for (const std::string mode : {"exit_at_start", "refuse", "die_on_fork", "garbage"}) {
    CAPTURE(mode);
    const TempDir folder;
    const auto descriptors = open_descriptors();
    {
      EventBook book;
      LocalEngine engine(with_python(folder));
      const GangId id = reserve(engine, book, 4);
      for (int i = 0; i < 4; ++i) engine.start(id, i, worker(folder.path(), fmt::format("exit {}", i), mode));
      for (int i = 0; i < 4; ++i) {
        const auto exited = book.next<Exited>();
        CHECK(exited.status == ExitStatus{ExitStatus::Kind::kCode, exited.bundle});
      }
      CHECK(book.count<Started>() == 4);
      CHECK(book.count<StartFailed>() == 0);
    }
    CHECK(open_descriptors() == descriptors);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  }
}

TEST_CASE("a warm process that restarts after a failed import is waited for, and then forks") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(with_python(folder));
  const GangId id = reserve(engine, book, 1);
  engine.start(id, 0, worker(folder.path(), "exit 4", "replaced"));
  CHECK(book.next<Started>().forked);
  CHECK(to_string(book.next<Exited>().status) == "exit code 4");
  engine.release(id);
}

TEST_CASE("a Python that cannot be started does not fail the worker") {
  const TempDir folder;
  EventBook book;
  auto options = with_python(folder);
  options.python = {"/no/such/python"};
  LocalEngine engine(options);
  engine.warm_up({});
  const GangId id = reserve(engine, book, 1);
  engine.start(id, 0, worker(folder.path(), "exit 2"));
  CHECK_FALSE(book.next<Started>().forked);
  CHECK(to_string(book.next<Exited>().status) == "exit code 2");
}

TEST_CASE("if the zygote is killed, its workers die with it, and a new one serves the next") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(with_python(folder));
  const GangId id = reserve(engine, book, 2);
  engine.start(id, 0, worker(folder.path(), "sleep 1000 & echo $! > child; wait"));
  engine.start(id, 1, worker(folder.path(), "exec sleep 1000"));
  const int pid = book.next<Started>().pid;
  book.next<Started>();
  const int child = written_number(folder / "child");
  const int zygote = parent_of(pid);
  REQUIRE(::kill(zygote, SIGKILL) == 0);
  CHECK(book.next<Exited>().status.kind == ExitStatus::Kind::kUnknown);
  CHECK(book.next<Exited>().status.kind == ExitStatus::Kind::kUnknown);
  CHECK(eventually([&] { return gone(child); }));

  engine.start(id, 0, worker(folder.path(), "exit 1"));
  CHECK(book.next<Started>().forked);
  CHECK(to_string(book.next<Exited>().status) == "exit code 1");
}

TEST_CASE("if a zygote does not report how a worker ended, the status is unknown") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(with_python(folder));
  const GangId id = reserve(engine, book, 1);
  engine.start(id, 0, worker(folder.path(), "exit 0", "silent_exit"));
  CHECK(book.next<Started>().forked);
  CHECK(book.next<Exited>().status == ExitStatus{});
}

TEST_CASE("the status of a worker is known while the zygote is too busy to report it") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(with_python(folder));
  const GangId id = reserve(engine, book, 2);
  engine.start(id, 0, worker(folder.path(), "exec sleep 1000"));
  const int killed = book.next<Started>().pid;
  engine.start(id, 1, worker(folder.path(), "mkfifo go; echo $$ > ready; read word < go; exit 3"));
  book.next<Started>();
  written_number(folder / "ready");
  const int zygote = parent_of(killed);
  REQUIRE(::kill(zygote, SIGSTOP) == 0);
  REQUIRE(::kill(killed, SIGKILL) == 0);
  CHECK(to_string(book.next<Exited>().status) == "signal SIGKILL (9)");
  std::ofstream(folder / "go") << "now\n";
  CHECK(to_string(book.next<Exited>().status) == "exit code 3");
  // Its messages about them arrive late and are ignored.
  REQUIRE(::kill(zygote, SIGCONT) == 0);
  engine.start(id, 0, worker(folder.path(), "exit 1"));
  CHECK(book.next<Started>().forked);
  CHECK(to_string(book.next<Exited>().status) == "exit code 1");
  CHECK(book.count<Exited>() == 3);
}

TEST_CASE("workers that wait for imports can be stopped before they start") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(with_python(folder));
  const GangId id = reserve(engine, book, 2);
  engine.start(id, 0, worker(folder.path(), "touch never", "deaf"));
  engine.start(id, 1, worker(folder.path(), "touch never", "deaf"));
  engine.kill(id, 0, 1000s);
  CHECK(book.next<StartFailed>().error.message() == "rank 0 was stopped before it started");
  engine.release(id);
  CHECK(book.count<Started>() == 0);
  CHECK_FALSE(fs::exists(folder / "never"));
}

TEST_CASE("an environment that only takes effect at program start needs a new process") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(with_python(folder));
  const GangId id = reserve(engine, book, 1);
  engine.start(id, 0, worker(folder.path(), "exit 0"));
  CHECK(book.next<Started>().forked);
  book.next<Exited>();
  auto spec = worker(folder.path(), "exit 0");
  spec.env["LD_LIBRARY_PATH"] = "/opt/lib";
  engine.start(id, 0, spec);
  CHECK_FALSE(book.next<Started>().forked);
  book.next<Exited>();
  spec = worker(folder.path(), "exit 0");
  spec.env["NAME"] = "\xff\xfe";  // not UTF-8, so JSON cannot carry it
  engine.start(id, 0, spec);
  CHECK_FALSE(book.next<Started>().forked);
}

TEST_CASE("a log file that cannot be opened fails the start of a forked worker too") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(with_python(folder));
  const GangId id = reserve(engine, book, 1);
  auto spec = worker(folder.path(), "exit 0");
  spec.log_path = "/no/such/folder/log";
  engine.start(id, 0, spec);
  CHECK(book.next<StartFailed>().error.message().find("/no/such/folder/log") != std::string::npos);
}

TEST_CASE("nothing remains of a killed driver: no worker, no zygote, no grandchild of a forked worker") {
  const TempDir folder;
  const pid_t driver = ::fork();
  if (driver == 0) {
    EventBook book;
    LocalEngine engine(with_python(folder));
    const GangId id = reserve(engine, book, 2);
    engine.start(id, 0,
                 worker(folder.path(), "echo $PPID > zygote; echo $$ > forked; sleep 1000 & echo $! > child; wait"));
    engine.start(id, 1, shell(folder.path(), "echo $$ > executed; exec sleep 1000"));
    for (;;) ::pause();
  }
  std::vector<int> pids;
  for (const auto* name : {"zygote", "forked", "executed", "child"}) pids.push_back(written_number(folder / name));
  for (const int pid : pids) CHECK_FALSE(gone(pid));
  ::kill(driver, SIGKILL);
  ::waitpid(driver, nullptr, 0);
  for (const int pid : pids) CHECK(eventually([&] { return gone(pid); }));
}

TEST_CASE("frames of the zygote in small pieces") {
  auto env = plain_env();
  auto zygote = Zygote::start({"python3", kFake}, env);
  REQUIRE(zygote.ok());
  std::vector<Zygote::Message> messages;
  const auto pump = [&](std::size_t count) {
    return eventually([&] {
      REQUIRE(zygote->flush().ok());
      auto got = zygote->receive();
      REQUIRE(got.ok());
      for (auto& message : *got) messages.push_back(std::move(message));
      return messages.size() >= count;
    });
  };
  REQUIRE(pump(1));
  CHECK(std::get<Zygote::Ready>(messages[0]).pid == zygote->process().pid);
  CHECK(zygote->preload({"json", "missing"}, {}));
  CHECK_FALSE(zygote->preload({"json"}, {}));
  REQUIRE(pump(2));
  CHECK(std::get<Zygote::Preloaded>(messages[1]).failed.at("missing") == "ImportError: no");

  const TempDir folder;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    auto spec = worker(folder.path(), fmt::format("exit {}", id));
    spec.env["BALLAST"] = std::string(300000, 'x');  // more than the socket takes at once
    if (id == 2) spec.env["BALLAST"].resize(10);
    auto log = open_log(spec);
    REQUIRE(log.ok());
    zygote->fork(id, spec, std::move(log).value());
  }
  REQUIRE(pump(8));
  std::map<int, int> expected;  // exit codes by pid
  int exits = 0;
  for (const auto& message : messages) {
    if (const auto* forked = std::get_if<Zygote::Forked>(&message)) {
      expected[forked->process.pid] = static_cast<int>(forked->id);
      CHECK(ended(forked->process.pidfd));
    } else if (const auto* exited = std::get_if<Zygote::ChildExited>(&message)) {
      ++exits;
      // 300 kB is more than Linux accepts in one variable: exec fails in that worker.
      const int id = expected.at(exited->pid);
      CHECK(exited->status == ExitStatus{ExitStatus::Kind::kCode, id == 2 ? 2 : 1});
    }
  }
  CHECK(expected.size() == 3);
  CHECK(exits == 3);
  const Process process = zygote->release();
  CHECK(ended(process.pidfd));
  CHECK(to_string(reap(process)) == "exit code 0");
}

}  // namespace zygote_test
