#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/local_engine.h"
#include "trireme/trainer.h"

namespace trireme::api {

// What a process keeps between runs: its engine, with the declared capacity and the warm Python process.
class Runtime {
 public:
  // `python`: the interpreter of Python workers; empty in programs without Python.
  explicit Runtime(std::vector<std::string> python) : python_(std::move(python)) {}

  // Before the first run, or between runs: replaces what was declared. What is not given comes from the environment.
  base::Result<void> init(InitOptions options);

  // The engine, made when first needed.
  base::Result<engine::Engine*> engine();
  // Starts the process that Python workers are forked from, or takes a copy of this one for it.
  base::Result<void> warm_up(std::vector<std::string> preload);
  // While runs go on; what is not given stays. Returns what there is then. Refused where a run needs more.
  struct Capacity {
    std::optional<double> num_cpus;
    std::optional<double> num_gpus;
    Resources resources;
  };
  base::Result<Dict> set_capacity(const Capacity& asked);
  const base::Clock& clock() const { return clock_; }
  void shutdown() { engine_.reset(); }

 private:
  std::vector<std::string> python_;
  base::SystemClock clock_;
  std::filesystem::path state_dir_;  // of the engine
  std::unique_ptr<engine::LocalEngine> engine_;
};

}  // namespace trireme::api
