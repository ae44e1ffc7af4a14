#pragma once

#include <csignal>
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
  // Sent when the thread that started it ends: call launch() on a thread that lives as long as the process may. 0:
  // none.
  int parent_death_signal = SIGKILL;
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
// SIGTERM, and SIGCONT so that a stopped process gets to see it.
void ask_group_to_end(const Process& process);
// To what is left of the group of a process that has ended: data loader workers and the like.
void kill_group_remains(int pid);

// How a child of this process ended; call when its pidfd is readable. Unknown where somebody else has asked before.
ExitStatus reap(const Process& process);
ExitStatus from_wait_status(int status);
// How a process that has ended did so, as long as its parent, which is not this one, has not asked. Unknown where /proc
// does not tell, and for exit code 0: that is also what it shows to those who may not know.
ExitStatus peek_status(int pid);

}  // namespace trireme::engine
