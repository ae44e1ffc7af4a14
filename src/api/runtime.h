#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/engine_choice.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/local_engine.h"
#include "trireme/trainer.h"

namespace trireme::api {

// The state of a process between runs: its engine, with the declared capacity and the warm Python process.
class Runtime {
 public:
  // `python`: the interpreter of Python workers; empty in programs without Python.
  explicit Runtime(std::vector<std::string> python) : python_(std::move(python)) {}

  // Before the first run, or between runs: replaces the engine or its declared capacity. Defaults are from the
  // environment.
  base::Result<void> init(InitOptions options);

  // The engine, created on first use.
  base::Result<engine::Engine*> engine();
  // Starts the process that Python workers are forked from, or forks this process for it.
  base::Result<void> warm_up(std::vector<std::string> preload);
  // May be called during runs. Unset fields are unchanged. Returns the new capacity; an error if a run needs more.
  struct Capacity {
    std::optional<double> num_cpus;
    std::optional<double> num_gpus;
    Resources resources;
  };
  base::Result<Dict> set_capacity(const Capacity& asked);
  const base::Clock& clock() const { return clock_; }
  void shutdown();

 private:
  base::Result<void> init_remote(const InitOptions& options, EngineChoice choice);

  std::vector<std::string> python_;
  base::SystemClock clock_;
  std::filesystem::path state_dir_;  // of the engine
  EngineChoice choice_;              // of the engine
  std::unique_ptr<engine::Engine> engine_;
  engine::LocalEngine* local_ = nullptr;  // the engine, if it is the local one
};

}  // namespace trireme::api
