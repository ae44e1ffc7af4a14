#include "base/clock.h"
#include "cli/commands.h"

namespace trireme::cli {

base::Result<control::RunEntry> find_entry(const std::string& what) {
  control::RunRegistry registry;
  if (!what.empty()) return registry.find_run(what);
  auto entries = registry.list_runs();
  if (entries.empty()) return base::error("no runs on this machine yet");
  return entries.front();
}

base::Result<FoundRun> find(const std::string& what) {
  TRIREME_ASSIGN(auto entry, find_entry(what));
  TRIREME_ASSIGN(auto record, control::read_run(entry.path));
  auto summary = control::summary(record, control::is_active(entry), base::SystemClock().wall());
  return FoundRun{std::move(entry), std::move(record), std::move(summary)};
}

}  // namespace trireme::cli
