#pragma once

#include <sys/types.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "engine/engine.h"
#include "engine/gang_table.h"
#include "engine/machine.h"
#include "engine/zygote.h"

// The engine of one machine: processes are children of this one.

namespace trireme::engine {

struct LocalEngineOptions {
  MachineOptions machine;
  // The interpreter, for example {"/usr/bin/python3"}; empty in programs without Python. `-m trireme._zygote` is
  // appended.
  std::vector<std::string> python;
};

class LocalEngine final : public Engine {
 public:
  // Starts no thread and opens nothing: both wait for the first reserve(), warm_up() or set_capacity().
  explicit LocalEngine(LocalEngineOptions options);
  // Ends what still runs; returns when it is gone.
  ~LocalEngine() override;
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  Result<void> check(const GangRequest& request) const override { return machine_.check(request); }
  GangId reserve(GangRequest request, EventHandler handler) override;
  void release(GangId gang) override;
  void start(GangId gang, int bundle, ProcessSpec spec) override;
  void kill(GangId gang, int bundle, base::Seconds grace) override;
  std::vector<NodeInfo> nodes() const override { return {machine_.node()}; }

  // Replaces what is declared; running gangs and the warm process stay.
  void declare(const MachineOptions& options);
  // Changes what is given, while gangs run. Declared from then on, so a limit: less than what they need at least is
  // refused; of optional gangs the newest are asked back. Returns when decided; never called from a handler.
  Result<NodeInfo> set_capacity(const Capacity& asked);

  // Starts the process that Python workers are forked from, which imports these modules in the background. Reads the
  // environment: not while another thread changes it.
  void warm_up(std::vector<std::string> preload);

 private:
  void post(Command command);
  void serve();
  void take_turns();
  std::deque<Command> take_commands();

  Machine machine_;
  std::vector<std::string> zygote_argv_;
  base::SystemClock clock_;
  pid_t owner_ = 0;  // who started the thread: a forked copy of this process has none

  std::mutex mutex_;  // guards what follows
  std::deque<Command> commands_;
  GangId next_gang_ = 1;
  bool stopping_ = false;
  bool broken_ = false;
  base::Fd wake_;

  std::unique_ptr<std::jthread> thread_;
};

}  // namespace trireme::engine
