#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "engine/engine.h"

// Starting a process and learning how it ended.

namespace trireme::engine {

struct Launch {
  std::vector<std::string> argv;  // looked up in PATH of `env` where argv[0] has no slash
  std::map<std::string, std::string> env;
  std::string cwd;  // empty: this process's own
  int stdout_fd = 1;
  int stderr_fd = 2;
  // The one descriptor that is handed on beside the standard ones; its number is told in the variable.
  int passed_fd = -1;
  std::string passed_variable;
  // SIGKILL when the thread that started it ends: call launch() on a thread that lives as long as the process may.
  bool dies_with_parent = true;
};

struct Process {
  int pid = 0;
  base::Fd pidfd;  // readable once the process has ended
};

// A process that leads its own session and group, with stdin from /dev/null, default signals and no other descriptor of
// ours. Returns when the program runs, or with why it does not.
Result<Process> launch(const Launch& launch);

// The process of a worker: its log file, its ticket.
Result<Process> launch_worker(const ProcessSpec& spec);
Result<base::Fd> open_log(const ProcessSpec& spec);

Result<base::Fd> open_pidfd(int pid);
// To the whole group, or to the process alone while it has not made its group yet.
void signal_group(const Process& process, int signal);
// To what is left of the group of a process that has ended: data loader workers and the like.
void kill_group_remains(int pid);

// How a child of this process ended; call when its pidfd is readable. Unknown where somebody else has asked before.
ExitStatus reap(const Process& process);
ExitStatus from_wait_status(int status);

}  // namespace trireme::engine
