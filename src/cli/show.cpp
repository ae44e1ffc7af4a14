#include <fmt/format.h>

#include <algorithm>

#include "api/describe.h"
#include "base/clock.h"
#include "base/dict_fields.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/table.h"

namespace trireme::cli {
namespace {

using base::flag_of;
using base::int_of;
using base::number_of;
using base::text_of;

using Rows = std::vector<std::pair<std::string, std::string>>;

Dict to_json_dict(const FoundRun& found) {
  const auto& told = found.summary;
  List failures;
  for (const auto& event : found.record.events) {
    if (text_of(event, "event") == "worker_failed") failures.push_back(event);
  }
  return {{"name", told.name},
          {"id", told.id},
          {"path", told.path},
          {"state", told.state},
          {"num_workers", told.num_workers},
          {"attempts", told.attempts},
          {"reports", told.reports.count()},
          {"checkpoints", told.checkpoints},
          {"started", told.started},
          {"seconds", told.seconds},
          {"metrics", told.last_metrics},
          {"error", told.error ? Value(*told.error) : Value()},
          {"failures", failures},
          {"torn", found.record.torn},
          {"run", found.record.run}};
}

void print_summary(const FoundRun& found) {
  const auto& told = found.summary;
  std::string state = told.state;
  if (state == "lost") state = "lost: the driver died; start the run again with the same name to continue it";
  Rows rows = {{"run", told.name},
               {"id", told.id},
               {"state", state},
               {"trainer", text_of(found.record.run, "trainer", "unknown")},
               {"workers", std::to_string(told.num_workers)},
               {"started", date_text(told.started)},
               {"duration", base::duration_text(told.seconds)},
               {"attempts", std::to_string(told.attempts)},
               {"reports", std::to_string(told.reports.count())},
               {"checkpoints", std::to_string(told.checkpoints)},
               {"folder", told.path}};
  if (told.state == "running") rows.insert(rows.begin() + 3, {"driver", fmt::format("pid {}", found.entry.pid)});
  fmt::print("{}", api::two_columns(rows));
  if (found.record.torn) fmt::print("\nwarning: the event log has an incomplete line\n");
}

void print_metrics(const Dict& metrics) {
  if (metrics.empty()) return;
  fmt::print("\nlast metrics of rank 0\n{}",
             api::two_columns(api::first_metric_rows(metrics, "`trireme show --json`")));
}

void print_failure(const Dict& event) {
  fmt::print("\nattempt {}: {}\n", int_of(event, "attempt"), api::describe(event).value_or("failure"));
  std::string traceback = text_of(event, "traceback");
  if (!traceback.empty()) {
    for (const auto& line : base::split(base::trim(traceback), '\n')) fmt::print("    {}\n", line);
  }
  const Value* tail = event.find("log_tail");
  const List* lines = tail ? tail->get_if<List>() : nullptr;
  if (!lines || lines->empty() || !traceback.empty()) return;
  fmt::print("  last lines of its log\n");
  for (const auto& line : *lines) {
    if (const auto* text = line.get_if<std::string>()) fmt::print("    {}\n", *text);
  }
}

// Errors caused by the first one, grouped by text.
void print_collateral(const std::vector<const Dict*>& failures) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const Dict* event : failures) {
    std::string text =
        fmt::format("attempt {}: {}", int_of(*event, "attempt"), api::headline(text_of(*event, "message")));
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == text; });
    if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(static_cast<int>(int_of(*event, "rank")));
  }
  if (!groups.empty()) fmt::print("\nother failures, probably caused by those above\n");
  for (const auto& [text, ranks] : groups) fmt::print("  rank {}: {}\n", base::rank_list(ranks), text);
}

void print_failures(const std::vector<Dict>& events) {
  // Only the latest failures: a run without a limit may have failed a thousand times.
  constexpr std::size_t kShown = 3;
  std::vector<const Dict*> first_errors, collateral;
  for (const auto& event : events) {
    if (text_of(event, "event") == "worker_failed")
      (flag_of(event, "collateral") ? collateral : first_errors).push_back(&event);
  }
  std::size_t skipped = first_errors.size() > kShown ? first_errors.size() - kShown : 0;
  if (skipped > 0) fmt::print("\n{}, see events.jsonl\n", base::count_of(skipped, "earlier failure"));
  for (std::size_t i = skipped; i < first_errors.size(); ++i) print_failure(*first_errors[i]);
  print_collateral(collateral);
}

// Each start of the run shows its date, later events the time since: a continued run may have been idle for days.
void print_events(const std::vector<Dict>& events) {
  constexpr std::size_t kShown = 15;
  std::vector<std::string> lines;
  double started = events.empty() ? 0.0 : number_of(events.front(), "time");
  for (const auto& event : events) {
    const double time = number_of(event, "time", started);
    const bool starts = text_of(event, "event") == "run_started";
    if (starts) started = time;
    if (auto line = api::describe(event)) {
      lines.push_back(fmt::format(
          "  {:>16}  {}", starts ? date_text(time) : base::duration_text(std::max(0.0, time - started)), *line));
    }
  }
  if (lines.empty()) return;
  fmt::print("\nevents\n");
  std::size_t skipped = lines.size() > kShown ? lines.size() - kShown : 0;
  if (skipped > 0) fmt::print("  ... {}, see events.jsonl\n", base::count_of(skipped, "earlier event"));
  for (std::size_t i = skipped; i < lines.size(); ++i) fmt::print("{}\n", lines[i]);
}

}  // namespace

base::Result<int> show(const ShowOptions& options) {
  TRIREME_ASSIGN(auto found, find(options.run));
  if (options.json) {
    fmt::print("{}\n", base::to_pretty_json(to_json_dict(found)));
    return kDone;
  }
  print_summary(found);
  print_metrics(found.summary.last_metrics);
  print_failures(found.record.events);
  print_events(found.record.events);
  return kDone;
}

}  // namespace trireme::cli
