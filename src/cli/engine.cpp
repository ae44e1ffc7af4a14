#include <cstdlib>

#include "base/json.h"
#include "cli/commands.h"

namespace trireme::cli {
namespace {

// A value that is not JSON is text: --engine-option partition=gpu.
Value value_of(const std::string& text) {
  auto parsed = base::parse_json(text);
  return parsed ? *std::move(parsed) : Value(text);
}

}  // namespace

void set_engine(const EngineArguments& arguments) {
  // Of an enclosing `trireme run`.
  ::unsetenv("TRIREME_RUN_ENGINE");
  ::unsetenv("TRIREME_RUN_ENGINE_OPTIONS");
  if (!arguments.engine) return;
  ::setenv("TRIREME_RUN_ENGINE", arguments.engine->c_str(), 1);
  Dict options;
  for (const auto& assignment : arguments.options) {
    const auto end = assignment.find('=');
    options[assignment.substr(0, end)] = value_of(assignment.substr(end + 1));
  }
  if (!options.empty()) ::setenv("TRIREME_RUN_ENGINE_OPTIONS", base::to_json(options).c_str(), 1);
}

}  // namespace trireme::cli
