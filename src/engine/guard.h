#pragma once

#include <map>
#include <set>
#include <string>

#include "base/fd.h"
#include "engine/process.h"

// Kills what executed workers leave behind when this process is killed. The kernel then kills the workers, but not the
// children that they started. (For forked workers the zygote does this.) A small separate process receives the list of
// workers and waits for this process to end. It kills every process in a worker's session, but not a child that has
// called setsid().

namespace trireme::engine {

class Guard {
 public:
  Guard() = default;
  // Ends the guard process without killing anything if no worker is left.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // A worker that leads its own session. `env`: environment of the guard process, if it is not running yet.
  void add(int leader, const std::map<std::string, std::string>& env);
  // Nothing of the worker is left. Call it before the worker is reaped, because its pid may be reused afterwards.
  void remove(int leader);

  // Starts the guard process if it is needed and not running. Separate from add() so that all workers are started
  // first. Call it on a thread that lives as long as the workers. If it cannot be started, the run continues without
  // it.
  void keep_up();

  int pid() const { return process_.pid; }  // 0: not running

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
