#include "agent/agent.h"

#include <cstdlib>

#include "cli/commands.h"

namespace trireme::cli {

base::Result<int> agent() {
  agent::Options options;
  const char* python = std::getenv("TRIREME_PYTHON");
  if (python && *python) options.python = {python};
  return agent::run(options);
}

}  // namespace trireme::cli
