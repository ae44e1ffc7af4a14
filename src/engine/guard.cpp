#include "engine/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>

#include "base/log.h"

namespace trireme::engine {
namespace {

constexpr int kPatienceMs = 1000;

// A shell exists on every machine, is small and starts in a millisecond. The script needs no other program. It detects
// the end of this process by the end of the socket or, if a copy of this process still holds the socket, by a signal
// that interrupts read.
constexpr const char* kScript = R"(trap '' HUP INT QUIT TERM
end_all() {
  for leader in $leaders; do kill -9 -$leader; done
  for pass in 1 2 3; do
    found=
    for folder in /proc/[0-9]*; do
      read -r line <$folder/stat || continue
      set -- ${line##*) }
      case " $leaders " in *" $4 "*) ;; *) continue ;; esac
      case $1 in [ZX]) continue ;; esac
      found=yes
      kill -9 ${folder#/proc/}
    done
    [ $found ] || break
  done
}
leaders=
trap : URG
exec <&3 3<&-
while read -r what pid; do
  case $what in
    +) leaders="$leaders $pid" ;;
    -)
      kept=
      for leader in $leaders; do [ $leader = $pid ] || kept="$kept $leader"; done
      leaders=$kept
      ;;
  esac
done
[ -z "$leaders" ] || end_all)";

// Ignored by default, in case it arrives before the script has installed its trap.
constexpr int kParentGone = SIGURG;

}  // namespace

Guard::~Guard() { stop(); }

Result<void> Guard::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return base::system_error("socketpair", errno);
  base::Fd ours(ends[0]);
  const base::Fd theirs(ends[1]);
  const base::Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null.valid()) return base::system_error("open /dev/null", errno);
  TRIREME_ASSIGN(process_, launch({.argv = {"/bin/sh", "-c", kScript, "trireme-guard"},
                                   .env = env_,
                                   .cwd = "/",
                                   .stdout_fd = null.get(),
                                   .stderr_fd = null.get(),
                                   .passed_fd = theirs.get(),
                                   .passed_variable = "TRIREME_GUARD_FD",
                                   .parent_death_signal = kParentGone}));
  socket_ = std::move(ours);
  return {};
}

void Guard::add(int leader, const std::map<std::string, std::string>& env) {
  leaders_.insert(leader);
  if (env_.empty()) env_ = env;
  if (socket_.valid()) tell('+', leader);
}

void Guard::keep_up() {
  if (leaders_.empty() || socket_.valid() || impossible_) return;
  if (auto started = start(); !started) {
    impossible_ = true;
    base::log_warning(
        "no guard process: if this process is killed, the processes that workers started keep running: {}",
        started.error().message());
    return;
  }
  for (const int each : leaders_) {
    if (socket_.valid()) tell('+', each);
  }
}

void Guard::remove(int leader) {
  if (leaders_.erase(leader) > 0 && socket_.valid()) tell('-', leader);
}

// A guard that no longer reads has been killed: keep_up() starts another one.
void Guard::tell(char what, int leader) {
  const std::string line = fmt::format("{} {}\n", what, leader);
  const auto sent = ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(line.size())) return;
  signal_group(process_, SIGKILL);
  stop();
}

void Guard::stop() {
  if (!socket_.valid()) return;
  socket_.reset();
  pollfd ended{.fd = process_.pidfd.get(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, kPatienceMs) != 1) signal_group(process_, SIGKILL);
  reap(process_);
  process_ = {};
}

}  // namespace trireme::engine
