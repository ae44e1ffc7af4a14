#include "base/process_state.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace process_state_test {

using namespace trireme;

TEST_CASE("describes a process from start to exit") {
  const pid_t child = ::fork();
  if (child == 0) {
    while (true) ::pause();
  }
  REQUIRE(child > 0);
  ::kill(child, SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  CHECK(base::describe_process(child).starts_with("stopped by a signal, "));
  ::kill(child, SIGCONT);
  std::string words;
  while (!words.starts_with("sleeping")) words = base::describe_process(child);
  CHECK(words.find(" thread") != std::string::npos);
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(base::describe_process(child).starts_with("ended"));
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(base::describe_process(child) == "gone");
}

TEST_CASE("describes a thread") {
  CHECK(base::describe_thread(static_cast<int>(::syscall(SYS_gettid))) == "running");
  CHECK(base::describe_thread(1 << 30) == "gone");
}

}  // namespace process_state_test
