#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/guard.h"
#include "engine/out_of_memory.h"
#include "engine/process.h"
#include "engine/warm_python.h"

// Starts the processes of bundles and watches them until they end. Used by the engine's thread alone, which must
// outlive them: they are killed when it ends.

namespace trireme::engine {

struct BundleId {
  GangId gang = 0;
  int bundle = 0;
  auto operator<=>(const BundleId&) const = default;
};

class Supervisor {
 public:
  struct Owner {
    std::function<void(BundleId, int pid, bool forked)> started;
    std::function<void(BundleId, base::Error)> start_failed;
    // `out_of_memory`: see Exited.
    std::function<void(BundleId, int pid, ExitStatus, std::string out_of_memory)> exited;
  };

  Supervisor(std::vector<std::string> zygote_argv, Owner owner);

  void start(BundleId id, ProcessSpec spec);
  void kill(BundleId id, base::Seconds grace, base::MonotonicTime now);
  // Sends SIGKILL to all processes of the gang. Pending starts are cancelled.
  void end_gang(GangId gang);
  bool has_gang(GangId gang) const;
  WarmPython& python() { return python_; }

  // Waits until a process changes, `wake_fd` is readable or `until` is reached, and handles it.
  void wait(int wake_fd, std::optional<base::MonotonicTime> until, const base::Clock& clock);

  // Kills everything; returns after all processes have exited.
  void shut_down(const base::Clock& clock);

 private:
  // A process from start() until it ends.
  struct Entry {
    enum class State {
      kForking,  // requested, not forked yet
      kRunning,
      kEnded,  // forked, and the zygote has not reported the status yet
    };
    State state = State::kForking;
    bool forked = false;
    bool condemned = false;  // we send SIGKILL as soon as it exists, or have sent it
    std::uint64_t fork_id = 0;
    ProcessSpec spec;  // until it runs
    Process process;
    std::vector<OomCounter> oom_counters;         // read when it was started
    std::optional<base::MonotonicTime> deadline;  // kRunning: SIGKILL; kEnded: stop waiting for the status
  };
  using Entries = std::map<BundleId, Entry>;

  void execute(Entries::iterator entry);
  void on_forked(std::uint64_t fork_id, Process process);
  void on_fork_unavailable(std::uint64_t fork_id);
  void on_zygote_gone();
  void on_ended(BundleId id, base::MonotonicTime now);
  void finish(Entries::iterator entry, ExitStatus status);
  void advance(base::MonotonicTime now);
  std::optional<base::MonotonicTime> next_deadline() const;
  Entries::iterator by_fork_id(std::uint64_t fork_id);

  Owner owner_;
  Entries entries_;
  std::uint64_t next_fork_id_ = 1;
  OutOfMemory out_of_memory_;
  Guard guard_;  // for executed workers
  WarmPython python_;
};

}  // namespace trireme::engine
