#include "worker/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/fd.h"

namespace trireme::worker {
namespace {

constexpr int kHandlerCheckMs = 100;

// State of the signal handler, which can only access globals.
struct Termination {
  int wake = -1;
  pid_t self = 0;
  pid_t driver = 0;
  SignalHandler interpreter = nullptr;
  std::atomic<bool> has_script_handler = false;
  volatile std::sig_atomic_t sender = 0;
  volatile std::sig_atomic_t told = 0;
};
Termination g_termination;

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_termination(int signal, siginfo_t* info, void*) {
  // Children that this process has forked (such as loader workers) are terminated by their parent with SIGTERM, and
  // must end.
  const bool of_a_child = ::getpid() != g_termination.self;
  const bool ends = of_a_child || g_termination.told || info->si_pid == g_termination.driver;
  if (!ends) {
    const int kept = errno;
    g_termination.told = 1;
    g_termination.sender = info->si_pid;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(g_termination.wake, &one, sizeof one);
    errno = kept;
  }
  if (g_termination.has_script_handler) return g_termination.interpreter(signal);
  if (ends) end_by(signal);
}

void handle_termination() {
  struct sigaction action {};
  action.sa_sigaction = on_termination;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
}

// Frameworks replace the handler when they start services of their own. A script's handler is called by ours, and a
// script that ignores the signal is left alone.
void take_handler_back() {
  struct sigaction found {};
  ::sigaction(SIGTERM, nullptr, &found);
  const bool takes_info = (found.sa_flags & SA_SIGINFO) != 0;
  if (takes_info ? found.sa_sigaction == on_termination : found.sa_handler == SIG_IGN) return;
  g_termination.has_script_handler = !takes_info && found.sa_handler == g_termination.interpreter;
  handle_termination();
}

void announce_terminations(Session& session) {
  ::pthread_setname_np(::pthread_self(), "trireme-term");
  pollfd wake{.fd = g_termination.wake, .events = POLLIN, .revents = 0};
  const int timeout_ms = g_termination.interpreter ? kHandlerCheckMs : -1;
  while (!g_termination.told || g_termination.interpreter) {
    const int ready = ::poll(&wake, 1, timeout_ms);
    if (ready == 0) take_handler_back();
    if (ready <= 0) continue;
    std::uint64_t count = 0;
    while (::read(g_termination.wake, &count, sizeof count) < 0 && errno == EINTR) continue;
    session.announce_own_preemption(fmt::format("SIGTERM from pid {}", static_cast<int>(g_termination.sender)));
  }
}

}  // namespace

void watch_termination(Session& session, SignalHandler interpreter) {
  g_termination.wake = ::eventfd(0, EFD_CLOEXEC);
  TRIREME_CHECK(g_termination.wake >= 0, "eventfd: errno {}", errno);
  g_termination.self = ::getpid();
  g_termination.driver = session.driver();
  g_termination.interpreter = interpreter;
  handle_termination();
  std::thread(announce_terminations, std::ref(session)).detach();  // lives as long as the process
}

Result<void> redirect_output(const std::string& log) {
  // On a node of a cluster, the agent forwards it to the driver's machine.
  const char* root = std::getenv("TRIREME_LOG_ROOT");
  const std::string path = (root ? root : "") + log;
  std::error_code failure;  // opening the file reports it
  if (root) std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failure);
  base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return base::system_error(fmt::format("could not open {}", path), errno);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(file.get(), fd) < 0) return base::system_error(fmt::format("could not write to {}", path), errno);
  }
  return {};
}

}  // namespace trireme::worker
