#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/dict_fields.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "control/run_folder.h"
#include "data/digest_verify.h"
#include "storage/run_names.h"

namespace trireme::cli {
namespace {

using End = data::EpochVerdict::End;

std::string told(const data::EpochVerdict& verdict) {
  if (!verdict.problem.empty()) return "WRONG: " + verdict.problem;
  const bool complete = verdict.seen == verdict.size;
  if (complete && verdict.first == 0) return "every row once";
  std::string text = fmt::format("rows {} to {} once", verdict.first, verdict.seen);
  if (verdict.first > 0) text += "; the run started there, from a checkpoint";
  if (complete) return text;
  switch (verdict.end) {
    case End::kOver:
      return text + fmt::format("; the other {} dropped by drop_last or equal", verdict.size - verdict.seen);
    case End::kLeft: return text + "; then the loop exited";
    case End::kOpen: return text + "; the rest is pending";
  }
  return text;
}

Value end_name(End end) {
  if (end == End::kOpen) return {};
  return end == End::kOver ? "over" : "left";
}

// What a report says about the rows that its rank has taken and logged.
void add_report(const data::AttemptAndRank& who, const Dict& data, data::RunFacts& facts) {
  if (base::int_of(data, "rows") > 0) facts.took.insert(who);
  const Dict* logged = base::dict_of(data, "logged");
  for (const auto& [name, rows] : logged ? *logged : Dict()) {
    auto& most = facts.logged[who][name];
    most = std::max(most, base::int_of(*logged, name));
  }
}

// Nothing in a run of an earlier version.
std::optional<std::set<std::string>> logged_datasets(const Dict& started) {
  const Value* names = started.find("logged_datasets");
  if (!names || !names->get_if<List>()) return std::nullopt;
  std::set<std::string> found;
  for (const auto& name : names->as_list()) {
    if (const auto* text = name.get_if<std::string>()) found.insert(*text);
  }
  return found;
}

// From the event log: which datasets were logged, the ranks that returned from the training function, and the rows that
// ranks took.
data::RunFacts facts_of(const control::RunRecord& record) {
  data::RunFacts facts;
  std::optional<std::set<std::string>> datasets;  // of the current start of the run
  for (const auto& event : record.events) {
    const std::string kind = base::text_of(event, "event");
    const data::AttemptAndRank who(static_cast<int>(base::int_of(event, "attempt")),
                                   static_cast<int>(base::int_of(event, "rank")));
    if (kind == "run_started") {
      datasets = logged_datasets(event);
    } else if (kind == "attempt_started") {
      if (datasets) facts.datasets[who.first] = *datasets;
    } else if (kind == "worker_finished") {
      facts.finished.insert(who);
    } else if (const Dict* data = base::dict_of(event, "data"); kind == "report" && data) {
      add_report(who, *data, facts);
    }
  }
  return facts;
}

void print_json(const std::vector<data::EpochVerdict>& verdicts) {
  List list;
  for (const auto& each : verdicts) {
    list.push_back(Dict{{"dataset", each.dataset},
                        {"epoch", each.epoch},
                        {"size", each.size},
                        {"first", each.first},
                        {"seen", each.seen},
                        {"end", end_name(each.end)},
                        {"attempts", each.attempts},
                        {"problem", each.problem.empty() ? Value() : Value(each.problem)}});
  }
  fmt::print("{}\n", base::to_pretty_json(list));
}

void print_table(const std::vector<data::EpochVerdict>& verdicts) {
  std::vector<std::vector<std::string>> rows{{"dataset", "epoch", "rows", "attempts", ""}};
  for (const auto& each : verdicts) {
    rows.push_back({each.dataset, fmt::format("{}", each.epoch), fmt::format("{} of {}", each.seen, each.size),
                    fmt::format("{}", each.attempts), told(each)});
  }
  fmt::print("{}", table(rows));
}

}  // namespace

base::Result<int> data_verify(const DataVerifyOptions& options) {
  TRIREME_ASSIGN(const auto entry, find_entry(options.run));
  const std::string folder = fmt::format("{}/{}", entry.path, storage::kDataFolder);
  TRIREME_ASSIGN(const auto record, control::read_run(entry.path));
  if (record.events.empty()) {
    return base::error("{} has no event log: nothing shows which samples its workers logged", entry.path);
  }
  const data::RunFacts facts = facts_of(record);
  const bool logged = std::any_of(facts.datasets.begin(), facts.datasets.end(),
                                  [](const auto& attempt) { return !attempt.second.empty(); });
  if (!logged && !std::filesystem::exists(folder)) {
    return base::error("{} has no sample log: set DataConfig.log_samples of the trainer", entry.path);
  }
  TRIREME_ASSIGN(const auto verdicts, data::verify_digests(folder, facts));
  options.json ? print_json(verdicts) : print_table(verdicts);
  for (const auto& each : verdicts) {
    if (!each.problem.empty()) return kFailed;
  }
  return kDone;
}

}  // namespace trireme::cli
