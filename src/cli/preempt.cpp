#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/commands.h"

namespace trireme::cli {

base::Result<int> preempt(const PreemptOptions& options) {
  TRIREME_ASSIGN(auto entry, find_active(options.run));
  wire::PreemptRun request;
  request.id = 1;
  request.ranks = options.ranks;
  request.seconds = options.deadline;
  request.why = options.why.empty() ? fmt::format("trireme preempt (pid {})", ::getpid()) : options.why;
  TRIREME_TRY(ask(entry, request), "could not reach run {} (driver pid {})", entry.name, entry.pid);
  const std::string who = options.ranks.empty()       ? "all workers"
                          : options.ranks.size() == 1 ? fmt::format("rank {}", options.ranks.front())
                                                      : fmt::format("ranks {}", base::rank_list(options.ranks));
  const std::string when =
      options.deadline ? fmt::format("in {} s", base::amount(*options.deadline)) : "after the run's preemption_grace_s";
  fmt::print("announced to run {}: {} will be preempted {}\n", entry.name, who, when);
  return kDone;
}

}  // namespace trireme::cli
