#include "engine/process.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <csignal>

#include "unit/engine/testing.h"

namespace process_test {

using namespace trireme;
using namespace trireme::engine;
using namespace trireme::engine::testing;

namespace {

struct Outcome {
  ExitStatus status;
  std::string log;
};

Outcome run(const ProcessSpec& spec) {
  auto process = launch_worker(spec);
  if (!process) FAIL(process.error().message());
  REQUIRE(ended(process->pidfd));
  return {reap(*process), read_text(spec.log_path)};
}

std::string failure(const ProcessSpec& spec) {
  const auto process = launch_worker(spec);
  REQUIRE_FALSE(process.ok());
  return process.error().message();
}

ExitStatus code(int value) { return {ExitStatus::Kind::kCode, value}; }
ExitStatus by_signal(int value) { return {ExitStatus::Kind::kSignal, value}; }

}  // namespace

TEST_CASE("a worker gets its ticket, log, folder, environment and no other descriptor of ours") {
  const TempDir folder;
  const auto descriptors = open_descriptors();
  std::ofstream(folder / "log") << "before\n";
  const base::Fd leaky(::open("/dev/null", O_RDONLY));  // not close-on-exec, as in other libraries
  auto spec = shell(folder.path(),
                    "pwd; echo $GREETING; cat <&$TRIREME_TICKET_FD; echo; ls -l /proc/self/fd | wc -l; cat; "
                    "echo to stderr >&2; ps -o pid=,pgid=,sid= $$ 2>/dev/null | tr -s ' ' | cut -d' ' -f2-; exit 3");
  spec.env["GREETING"] = "hello";
  spec.env["TRIREME_TICKET_FD"] = "77";  // that of a driver that is itself a worker
  spec.ticket = R"({"secret":")" + std::string(200000, 's') + R"("})";
  const auto [status, log] = run(spec);
  CHECK(status == code(3));
  CHECK(log.starts_with("before\n" + fs::canonical(folder.path()).string() + "\nhello\n" + spec.ticket + "\n"));
  // "total 0", 0, 1, 2, the ticket, and the folder that ls itself reads.
  CHECK(log.find("\n6\n") != std::string::npos);
  CHECK(log.find("to stderr\n") != std::string::npos);
  CHECK(open_descriptors() == descriptors + 1);
}

TEST_CASE("a failed start reports the reason") {
  const TempDir folder;
  const auto descriptors = open_descriptors();
  auto spec = shell(folder.path(), "true");
  spec.argv = {"/no/such/program"};
  CHECK(failure(spec) == "could not execute /no/such/program: No such file or directory (errno 2)");
  spec.argv = {"no-such-program-anywhere"};
  CHECK(failure(spec).find("'no-such-program-anywhere': not found in PATH") != std::string::npos);
  spec.argv = {folder.path().string()};
  CHECK(failure(spec).find("Permission denied") != std::string::npos);
  spec.argv = {};
  CHECK(failure(spec).find("argv is empty") != std::string::npos);
  spec = shell(folder.path(), "true");
  spec.cwd = "/no/such/folder";
  CHECK(failure(spec) == "could not change to the folder /no/such/folder: No such file or directory (errno 2)");
  spec = shell(folder.path(), "true");
  spec.log_path = "/no/such/folder/rank_0.log";
  CHECK(failure(spec).find("could not open /no/such/folder/rank_0.log, the log file of rank 0") != std::string::npos);
  CHECK(open_descriptors() == descriptors);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("signals are reset to their defaults, regardless of this process's handlers") {
  const TempDir folder;
  ::signal(SIGUSR1, SIG_IGN);
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  CHECK(run(shell(folder.path(), "kill -USR1 $$; exit 0")).status == by_signal(SIGUSR1));
  CHECK(run(shell(folder.path(), "kill -TERM $$; exit 0")).status == by_signal(SIGTERM));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("a signal reaches the whole group; the rest of the group can be killed after its leader") {
  const TempDir folder;
  auto process = launch_worker(shell(folder.path(), "sleep 1000 & echo $! > child; wait"));
  REQUIRE(process.ok());
  const int child = written_number(folder / "child");
  CHECK(::getpgid(child) == process->pid);
  CHECK(::getsid(process->pid) == process->pid);
  signal_group(*process, SIGTERM);
  REQUIRE(ended(process->pidfd));
  CHECK(reap(*process) == by_signal(SIGTERM));
  CHECK(eventually([&] { return gone(child); }));

  process = launch_worker(shell(folder.path(), "sleep 1000 & echo $! > child2"));
  REQUIRE(process.ok());
  const int orphan = written_number(folder / "child2");
  REQUIRE(ended(process->pidfd));
  CHECK_FALSE(gone(orphan));
  kill_group_remains(process->pid);
  CHECK(reap(*process) == code(0));
  CHECK(eventually([&] { return gone(orphan); }));
}

TEST_CASE("a worker dies with the process that started it") {
  const TempDir folder;
  const pid_t driver = ::fork();
  if (driver == 0) {
    const auto process = launch_worker(shell(folder.path(), "echo $$ > pid; exec sleep 1000"));
    while (process.ok()) ::pause();
    ::_exit(1);
  }
  const int worker = written_number(folder / "pid");
  CHECK_FALSE(gone(worker));
  ::kill(driver, SIGKILL);
  ::waitpid(driver, nullptr, 0);
  CHECK(eventually([&] { return gone(worker); }));
}

TEST_CASE("the status is unknown if the process was already reaped elsewhere") {
  const TempDir folder;
  const auto process = launch_worker(shell(folder.path(), "exit 4"));
  REQUIRE(process.ok());
  int status = 0;
  REQUIRE(::waitpid(process->pid, &status, 0) == process->pid);
  CHECK(from_wait_status(status) == code(4));
  CHECK(reap(*process) == ExitStatus{});
  CHECK(from_wait_status(SIGKILL) == by_signal(SIGKILL));
}

}  // namespace process_test
