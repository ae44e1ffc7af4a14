#include "engine/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/text.h"

// System call numbers that older headers lack; they are the same on every architecture.
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

namespace trireme::engine {
namespace {

constexpr int kPassedFd = 3;
constexpr unsigned kCloseRangeCloexec = 4;               // CLOSE_RANGE_CLOEXEC
constexpr idtype_t kPidfdId = static_cast<idtype_t>(3);  // P_PIDFD

enum class Stage : int { kSetUp, kEnterFolder, kExecute };

struct ChildFailure {
  Stage stage;
  int error_number;
};

// All that the child needs, prepared before the fork: between fork and exec only async-signal-safe calls are allowed.
struct Plan {
  const char* program;
  char* const* argv;
  char* const* env;
  const char* cwd;  // nullptr: unchanged
  int stdin_fd;
  int stdout_fd;
  int stderr_fd;
  int passed_fd;  // -1: none
  int failure_fd;
  int highest_fd;
  pid_t parent;
  int parent_death_signal;
};

[[noreturn]] void give_up(const Plan& plan, Stage stage) {
  const ChildFailure failure{stage, errno};
  // Nothing can be done if the pipe does not take eight bytes.
  [[maybe_unused]] const auto written = ::write(plan.failure_fd, &failure, sizeof failure);
  ::_exit(127);
}

void close_on_exec_from(int first, int highest) {
  if (::syscall(SYS_close_range, first, ~0U, kCloseRangeCloexec) == 0) return;
  for (int fd = first; fd < highest; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void become(const Plan& plan) {
  ::setsid();
  if (plan.parent_death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, plan.parent_death_signal);
    // The parent may have died before the line above.
    if (::getppid() != plan.parent) ::_exit(127);
  }
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &standard, nullptr);
  if (::dup2(plan.stdin_fd, 0) < 0 || ::dup2(plan.stdout_fd, 1) < 0 || ::dup2(plan.stderr_fd, 2) < 0) {
    give_up(plan, Stage::kSetUp);
  }
  if (plan.passed_fd >= 0 && ::dup2(plan.passed_fd, kPassedFd) < 0) give_up(plan, Stage::kSetUp);
  close_on_exec_from(plan.passed_fd >= 0 ? kPassedFd + 1 : kPassedFd, plan.highest_fd);
  if (plan.cwd && ::chdir(plan.cwd) != 0) give_up(plan, Stage::kEnterFolder);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(plan.program, plan.argv, plan.env);
  give_up(plan, Stage::kExecute);
}

// A copy above the descriptor numbers that the child uses. `instead` replaces a standard descriptor that is closed in
// this process.
Result<base::Fd> lifted(int fd, int instead = -1) {
  base::Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kPassedFd + 1));
  if (!copy.valid() && errno == EBADF && fd <= 2) copy = base::Fd(::fcntl(instead, F_DUPFD_CLOEXEC, kPassedFd + 1));
  if (!copy.valid()) return base::system_error(fmt::format("copy descriptor {}", fd), errno);
  return copy;
}

Result<std::string> find_program(const Launch& launch) {
  if (launch.argv.empty()) return base::error("no program to execute: argv is empty");
  const std::string& name = launch.argv.front();
  if (name.find('/') != std::string::npos) return name;
  const auto path = launch.env.find("PATH");
  const std::string folders = path == launch.env.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
  for (const auto& folder : base::split(folders, ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    struct stat info = {};
    if (::stat(candidate.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return base::error("could not execute '{}': not found in PATH ({})", name, folders);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (auto& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

int descriptor_limit() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

base::Error describe(const ChildFailure& failure, const Launch& launch, const std::string& program) {
  switch (failure.stage) {
    case Stage::kEnterFolder:
      return base::system_error(fmt::format("could not change to the folder {}", launch.cwd), failure.error_number);
    case Stage::kExecute: return base::system_error(fmt::format("could not execute {}", program), failure.error_number);
    case Stage::kSetUp: break;
  }
  return base::system_error(fmt::format("could not set up the descriptors of {}", program), failure.error_number);
}

// Reads the child's error, if any. exec closes the pipe, so no data means success.
std::optional<ChildFailure> read_failure(int fd) {
  ChildFailure failure{};
  ssize_t got = 0;
  do {
    got = ::read(fd, &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof failure) return {};
  return failure;
}

void wait_for(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// No signal handler of this program may run in the child before its signals are reset to their defaults.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

Result<base::Fd> ticket_file(const std::string& ticket) {
  // Memory instead of a pipe: a ticket larger than the pipe's buffer would block.
  base::Fd fd(::memfd_create("trireme-ticket", MFD_CLOEXEC));
  if (!fd.valid()) return base::system_error("memfd_create", errno);
  for (std::size_t written = 0; written < ticket.size();) {
    const auto count = ::write(fd.get(), ticket.data() + written, ticket.size() - written);
    if (count < 0) return base::system_error("write", errno);
    written += static_cast<std::size_t>(count);
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

}  // namespace

Result<Process> launch(const Launch& launch) {
  TRIREME_ASSIGN(const std::string program, find_program(launch));
  std::vector<std::string> argv = launch.argv;
  std::vector<std::string> env;
  for (const auto& [name, value] : launch.env) {
    // A worker that is itself a driver has its own value.
    if (name != launch.passed_variable) env.push_back(name + "=" + value);
  }
  const auto argv_pointers = pointers(argv);

  base::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return base::system_error("open /dev/null", errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::system_error("pipe", errno);
  const base::Fd failure_in(ends[0]);
  base::Fd failure_out(ends[1]);
  TRIREME_ASSIGN(base::Fd child_failure, lifted(failure_out.get()));
  TRIREME_ASSIGN(const base::Fd child_in, lifted(null.get()));
  TRIREME_ASSIGN(const base::Fd child_out, lifted(launch.stdout_fd, null.get()));
  TRIREME_ASSIGN(const base::Fd child_err, lifted(launch.stderr_fd, null.get()));
  base::Fd passed;
  if (launch.passed_fd >= 0) {
    TRIREME_ASSIGN(passed, lifted(launch.passed_fd));
    env.push_back(fmt::format("{}={}", launch.passed_variable, kPassedFd));
  }
  const auto env_pointers = pointers(env);
  const Plan plan{.program = program.c_str(),
                  .argv = argv_pointers.data(),
                  .env = env_pointers.data(),
                  .cwd = launch.cwd.empty() ? nullptr : launch.cwd.c_str(),
                  .stdin_fd = child_in.get(),
                  .stdout_fd = child_out.get(),
                  .stderr_fd = child_err.get(),
                  .passed_fd = passed.get(),
                  .failure_fd = child_failure.get(),
                  .highest_fd = descriptor_limit(),
                  .parent = ::getpid(),
                  .parent_death_signal = launch.parent_death_signal};
  pid_t pid = -1;
  {
    const SignalsBlocked blocked;
    pid = ::fork();
    if (pid == 0) become(plan);
  }
  if (pid < 0) return base::system_error("fork", errno);
  failure_out.reset();
  child_failure.reset();
  if (const auto failure = read_failure(failure_in.get())) {
    wait_for(pid);
    return describe(*failure, launch, program);
  }
  auto pidfd = open_pidfd(pid);
  if (!pidfd) {
    ::kill(-pid, SIGKILL);
    wait_for(pid);
    return std::move(pidfd).error();
  }
  return Process{.pid = pid, .pidfd = std::move(pidfd).value()};
}

Result<base::Fd> open_log(const ProcessSpec& spec) {
  base::Fd log(::open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) {
    return base::system_error(fmt::format("could not open {}, the log file of {}", spec.log_path, spec.label), errno);
  }
  return log;
}

Result<Process> launch_worker(const ProcessSpec& spec) {
  TRIREME_ASSIGN(const base::Fd log, open_log(spec));
  TRIREME_ASSIGN(const base::Fd ticket, ticket_file(spec.ticket), "could not pass the ticket to {}", spec.label);
  return launch({.argv = spec.argv,
                 .env = spec.env,
                 .cwd = spec.cwd,
                 .stdout_fd = log.get(),
                 .stderr_fd = log.get(),
                 .passed_fd = ticket.get(),
                 .passed_variable = "TRIREME_TICKET_FD"});
}

Result<base::Fd> open_pidfd(int pid) {
  base::Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.valid()) return base::system_error(fmt::format("pidfd_open {} (needs Linux 5.4 or later)", pid), errno);
  return fd;
}

void signal_group(const Process& process, int signal) {
  if (::kill(-process.pid, signal) == 0) return;
  ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), signal, nullptr, 0);
}

void ask_group_to_end(const Process& process) {
  signal_group(process, SIGTERM);
  signal_group(process, SIGCONT);
}

void kill_group_remains(int pid) { ::kill(-pid, SIGKILL); }

ExitStatus reap(const Process& process) {
  siginfo_t info = {};
  int failed = 0;
  do {
    failed = ::waitid(kPidfdId, static_cast<id_t>(process.pidfd.get()), &info, WEXITED);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) return {};
  if (info.si_code == CLD_EXITED) return {.kind = ExitStatus::Kind::kCode, .value = info.si_status};
  return {.kind = ExitStatus::Kind::kSignal, .value = info.si_status};
}

ExitStatus from_wait_status(int status) {
  if (WIFEXITED(status)) return {.kind = ExitStatus::Kind::kCode, .value = WEXITSTATUS(status)};
  if (WIFSIGNALED(status)) return {.kind = ExitStatus::Kind::kSignal, .value = WTERMSIG(status)};
  return {};
}

ExitStatus peek_status(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  // "pid (name) Z ...": the name may contain any character, and the status is the 52nd field.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field != "Z") return {};
  for (int number = 4; number <= 52; ++number) fields >> field;
  if (!fields || field == "0") return {};
  return from_wait_status(std::atoi(field.c_str()));
}

}  // namespace trireme::engine
