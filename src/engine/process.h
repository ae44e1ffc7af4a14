#pragma once

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "engine/engine.h"

// Starts a process and determines how it ended.

namespace trireme::engine {

struct Launch {
  std::vector<std::string> argv;  // searched in PATH of `env` if argv[0] has no slash
  std::map<std::string, std::string> env;
  std::string cwd;  // empty: that of this process
  int stdout_fd = 1;
  int stderr_fd = 2;
  // The one descriptor that is passed in addition to the standard ones; the variable holds its number.
  int passed_fd = -1;
  std::string passed_variable;
  // Sent when the thread that called launch() ends, so call it on a thread that lives as long as the process. 0: none.
  int parent_death_signal = SIGKILL;
};

struct Process {
  int pid = 0;
  base::Fd pidfd;  // readable after the process has ended
};

// Starts a process that leads its own session and group, with stdin from /dev/null, default signals and no other
// descriptors. Returns when the program runs, or an error.
Result<Process> launch(const Launch& launch);

// Starts a worker process with its log file and ticket.
Result<Process> launch_worker(const ProcessSpec& spec);
Result<base::Fd> open_log(const ProcessSpec& spec);

Result<base::Fd> open_pidfd(int pid);
// Signals the whole group, or only the process if it has not created its group yet.
void signal_group(const Process& process, int signal);
// SIGTERM, and SIGCONT so that a stopped process receives it.
void ask_group_to_end(const Process& process);
// Kills the rest of the group of a process that has ended, such as data loader workers.
void kill_group_remains(int pid);

// How a child of this process ended. Call it when its pidfd is readable. Unknown if it was already reaped elsewhere.
ExitStatus reap(const Process& process);
ExitStatus from_wait_status(int status);
// How a process that is not a child of this one ended, before its parent reaps it. Unknown if /proc does not show it,
// and for exit code 0, which /proc also shows to unprivileged readers.
ExitStatus peek_status(int pid);

}  // namespace trireme::engine
