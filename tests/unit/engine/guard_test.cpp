#include "engine/guard.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "unit/engine/testing.h"

namespace trireme::engine {
namespace {

using testing::ended;
using testing::eventually;
using testing::gone;
using testing::plain_env;
using testing::read_text;

// A worker and its two children, one of which has left the group. They only end when killed: this tests the guard, not
// the parent-death signal.
struct Family {
  Process worker;
  int child = 0;
  int apart = 0;

  Family() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const base::Fd in(ends[0]);
    const base::Fd out(ends[1]);
    worker.pid = ::fork();
    if (worker.pid == 0) lead(out.get());
    int pids[2];
    REQUIRE(::read(in.get(), pids, sizeof pids) == sizeof pids);
    child = pids[0];
    apart = pids[1];
    worker.pidfd = open_pidfd(worker.pid).value();
  }
  ~Family() {
    for (const int pid : {child, apart}) ::kill(pid, SIGKILL);
    signal_group(worker, SIGKILL);
    reap(worker);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  [[noreturn]] static void lead(int out) {
    ::setsid();
    const int in_group = ::fork();
    const int apart = in_group == 0 ? 0 : ::fork();
    if (apart > 0) {
      ::setpgid(apart, apart);
      const int pids[2] = {in_group, apart};
      [[maybe_unused]] const auto written = ::write(out, pids, sizeof pids);
    }
    while (true) ::pause();
  }
  bool all_ended() const {
    return ended(worker.pidfd) && eventually([&] { return gone(child) && gone(apart); });
  }
  bool all_there() const { return !gone(worker.pid) && !gone(child) && !gone(apart); }
};

// Whether it ignores HUP, INT, QUIT and TERM; children inherit the signals that this process ignores.
bool ignores_signals(const std::string& status) {
  constexpr std::string_view kField = "SigIgn:\t";
  constexpr unsigned long long kFour = 0x4007;
  const auto at = status.find(kField);
  return at != std::string::npos && (std::stoull(status.substr(at + kField.size(), 16), nullptr, 16) & kFour) == kFour;
}

// It has read all its input and waits for more.
bool waits(int guard) {
  const std::string folder = "/proc/" + std::to_string(guard);
  return eventually([&] {
    const bool prepared = ignores_signals(read_text(folder + "/status"));
    const std::string stat = read_text(folder + "/stat");
    return prepared && stat.find(") S ") != std::string::npos;
  });
}

TEST_CASE("the guard kills what is left when the thread that started it ends") {
  const Family family;
  Guard guard;
  guard.add(family.worker.pid, plain_env());
  std::thread([&] {
    guard.keep_up();
    CHECK(waits(guard.pid()));
  }).join();
  // The guard object, and therefore the socket, still exists: only the kernel's signal notifies it.
  CHECK(family.all_ended());
}

TEST_CASE("the guard kills what is left when its socket is closed") {
  const Family one;
  const Family other;
  {
    Guard guard;
    guard.add(one.worker.pid, plain_env());
    guard.keep_up();
    guard.add(other.worker.pid, plain_env());
    guard.remove(other.worker.pid);
    CHECK(one.all_there());
  }
  CHECK(one.all_ended());
  CHECK(other.all_there());
}

TEST_CASE("a guard without workers exits without killing anything") {
  const Family family;
  const auto before = testing::open_descriptors();
  int pid = 0;
  {
    Guard guard;
    guard.keep_up();
    CHECK(guard.pid() == 0);
    guard.add(family.worker.pid, plain_env());
    guard.keep_up();
    pid = guard.pid();
    CHECK(pid > 0);
    CHECK(::getpgid(pid) == pid);
    guard.remove(family.worker.pid);
  }
  CHECK(gone(pid));
  CHECK(family.all_there());
  CHECK(testing::open_descriptors() == before);
}

TEST_CASE("only SIGKILL ends the guard, and the next worker then gets a new one") {
  const Family one;
  const Family other;
  {
    Guard guard;
    guard.add(one.worker.pid, plain_env());
    guard.keep_up();
    const int first = guard.pid();
    REQUIRE(waits(first));
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::kill(first, number);
    guard.add(other.worker.pid, plain_env());
    guard.remove(other.worker.pid);
    CHECK(guard.pid() == first);
    CHECK(!gone(first));
    ::kill(first, SIGKILL);
    REQUIRE(eventually([&] { return gone(first); }));
    guard.add(other.worker.pid, plain_env());
    CHECK(guard.pid() == 0);
    guard.keep_up();
    CHECK(guard.pid() > 0);
    CHECK(guard.pid() != first);
    CHECK(one.all_there());
  }
  CHECK(one.all_ended());
  CHECK(other.all_ended());
}

}  // namespace
}  // namespace trireme::engine
