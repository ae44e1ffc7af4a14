#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.h"

namespace trireme::cli {

base::Result<int> stop(const StopOptions& options) {
  if (options.run.empty()) {
    fmt::print(stderr, "trireme: run is required: trireme stop RUN; `trireme runs` lists them\n");
    return kWrongUsage;
  }
  TRIREME_ASSIGN(auto entry, find_active(options.run));
  wire::StopRun request;
  request.id = 1;
  request.why = fmt::format("trireme stop (pid {})", ::getpid());
  request.hard = options.hard;
  TRIREME_TRY(ask(entry, request), "could not stop run {} (driver pid {}); press Ctrl-C in its terminal instead",
              entry.name, entry.pid);
  fmt::print("run {} was asked to stop{}\n", entry.name, options.hard ? " at once" : "");
  return kDone;
}

}  // namespace trireme::cli
