#pragma once

#include <map>
#include <set>
#include <string>

#include "base/fd.h"
#include "engine/process.h"

// Ends what executed workers leave behind when this process is killed. The kernel ends the workers themselves then, but
// not the children that they have started; forked workers have their zygote for that. A small process of its own is
// told which workers there are and waits for this one's end. It reaches whoever is still in a worker's session; a child
// that has called setsid() is on its own.

namespace trireme::engine {

class Guard {
 public:
  Guard() = default;
  // Lets go of the process in peace where nothing is left to guard.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // A worker that leads its own session. `env`: of the guard, where it is still to be started.
  void add(int leader, const std::map<std::string, std::string>& env);
  // Nothing of the worker is left. Before its number can be another's: until it is reaped, that is.
  void remove(int leader);

  // Starts the process where it is wanted and not there: apart from add(), so that all workers are on their way before.
  // Call on a thread that lives as long as they do. Goes on without it where it cannot be had.
  void keep_up();

  int pid() const { return process_.pid; }  // 0: there is none

 private:
  Result<void> start();
  void tell(char what, int leader);
  void stop();

  std::set<int> leaders_;
  std::map<std::string, std::string> env_;
  Process process_;
  base::Fd socket_;
  bool impossible_ = false;
};

}  // namespace trireme::engine
