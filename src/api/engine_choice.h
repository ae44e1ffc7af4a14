#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/remote_engine.h"
#include "trireme/trainer.h"

// Where the workers of this process run, from init(), the environment and the command line.

namespace trireme::api {

struct EngineChoice {
  std::string name = "local";  // as written
  Dict options;

  bool local() const { return name == "local"; }
  bool operator==(const EngineChoice&) const = default;
};

// $TRIREME_RUN_ENGINE (set by `trireme run --engine`) takes precedence over `options`, and those over $TRIREME_ENGINE;
// the same for the options of the engine.
base::Result<EngineChoice> choose_engine(const InitOptions& options);

// The command of the engine's adapter; fails if there is no such engine. `argument` is what follows the colon.
struct Adapter {
  std::vector<std::string> command;
  std::optional<std::string> argument;
};
base::Result<Adapter> adapter_of(const std::string& name, const std::string& python);

// `python`: the interpreter with its flags; empty in programs without Python, whose agents are the program itself.
base::Result<engine::RemoteEngineOptions> remote_options(const EngineChoice& choice, std::vector<std::string> python,
                                                         std::filesystem::path state_dir);

}  // namespace trireme::api
