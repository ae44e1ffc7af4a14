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

// The engine for one machine: workers are child processes of this process.

namespace trireme::engine {

struct LocalEngineOptions {
  MachineOptions machine;
  // The interpreter, for example {"/usr/bin/python3"}; empty in programs without Python. `-m trireme._zygote` is
  // appended.
  std::vector<std::string> python;
};

class LocalEngine final : public Engine {
 public:
  // Starts no thread and opens nothing until the first reserve(), warm_up() or set_capacity().
  explicit LocalEngine(LocalEngineOptions options);
  // Kills all processes and returns after they have exited.
  ~LocalEngine() override;
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  Result<void> check(const GangRequest& request) const override { return machine_.check(request); }
  GangId reserve(GangRequest request, EventHandler handler) override;
  void release(GangId gang) override;
  void start(GangId gang, int bundle, ProcessSpec spec) override;
  void kill(GangId gang, int bundle, base::Seconds grace) override;
  std::vector<NodeInfo> nodes() const override { return {machine_.node()}; }

  // Replaces the declared capacity. Running gangs and the warm process stay.
  void declare(const MachineOptions& options);
  // Changes the fields that are set, while gangs run. They become declared and therefore limits. Fails if the gangs'
  // minimum no longer fits; of the optional gangs the newest are reclaimed. Returns when decided. Must not be called
  // from a handler.
  Result<NodeInfo> set_capacity(const Capacity& asked);

  // Starts the warm process, which imports these modules in the background. Reads the environment, so no other thread
  // may change it during the call.
  void warm_up(std::vector<std::string> preload) override;
  // The same with another environment.
  void warm_up(std::vector<std::string> preload, std::map<std::string, std::string> env);

 private:
  void post(Command command);
  void serve();
  void take_turns();
  std::deque<Command> take_commands();

  Machine machine_;
  std::vector<std::string> zygote_argv_;
  base::SystemClock clock_;
  pid_t owner_ = 0;  // the process that started the thread; a forked copy does not have it

  std::mutex mutex_;  // guards the following members
  std::deque<Command> commands_;
  GangId next_gang_ = 1;
  bool stopping_ = false;
  bool broken_ = false;
  base::Fd wake_;

  std::unique_ptr<std::jthread> thread_;
};

}  // namespace trireme::engine
