#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/table.h"

namespace trireme::cli {
namespace {

using control::RunSummary;

// Enough for one screen; --all for the rest.
constexpr std::size_t kShown = 20;

// The folder may have been deleted, moved or damaged: the run is still listed, from its registry entry.
RunSummary summary_of(const control::RunEntry& entry, double now) {
  auto record = control::read_run(entry.path);
  if (record) return control::summary(*record, control::is_active(entry), now);
  RunSummary told;
  told.name = entry.name;
  told.id = entry.id;
  told.path = entry.path;
  told.started = entry.started;
  told.state = "folder gone";
  return told;
}

Dict to_dict(const RunSummary& told) {
  return {{"name", told.name},         {"id", told.id},
          {"state", told.state},       {"num_workers", told.num_workers},
          {"attempts", told.attempts}, {"reports", told.reports.count()},
          {"started", told.started},   {"seconds", told.seconds},
          {"path", told.path},         {"error", told.error ? Value(*told.error) : Value()}};
}

std::vector<RunSummary> summaries(bool all, bool& more) {
  std::vector<RunSummary> list;
  double now = base::SystemClock().wall();
  for (const auto& entry : control::RunRegistry().list_runs()) {
    // A continued run has one entry per start but one folder: only its newest entry is shown.
    if (std::any_of(list.begin(), list.end(), [&](const RunSummary& seen) { return seen.path == entry.path; }))
      continue;
    if (!all && list.size() == kShown) {
      more = true;
      break;
    }
    RunSummary told = summary_of(entry, now);
    if (told.state == "folder gone" && !all) continue;
    list.push_back(std::move(told));
  }
  return list;
}

}  // namespace

base::Result<int> runs(const RunsOptions& options) {
  bool more = false;
  auto list = summaries(options.all, more);
  if (options.json) {
    List all;
    for (const auto& told : list) all.push_back(to_dict(told));
    fmt::print("{}\n", base::to_pretty_json(all));
    return kDone;
  }
  if (list.empty()) {
    fmt::print("no runs yet; by default their folders are created in {}\n", control::results_dir().string());
    return kDone;
  }
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "STATE", "WORKERS", "REPORTS", "STARTED", "DURATION", "FOLDER"}};
  for (const auto& told : list) {
    rows.push_back({told.name, told.state, fmt::format("{}", told.num_workers), fmt::format("{}", told.reports.count()),
                    date_text(told.started), base::duration_text(told.seconds), told.path});
  }
  fmt::print("{}", table(rows));
  if (more) fmt::print("... `trireme runs --all` lists the older ones\n");
  return kDone;
}

}  // namespace trireme::cli
