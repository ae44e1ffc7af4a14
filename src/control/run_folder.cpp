#include "control/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <system_error>
#include <tuple>

#include "base/config_fields.h"
#include "base/dict_fields.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "storage/local_files.h"
#include "storage/run_names.h"

namespace trireme::control {
namespace {

namespace fs = std::filesystem;
using base::error;
using base::Result;

// "rank_12.log" with the affixes "rank_" and ".log" -> 12.
std::optional<int> number_between(std::string_view text, std::string_view prefix, std::string_view suffix) {
  if (!text.starts_with(prefix) || !text.ends_with(suffix) || text.size() <= prefix.size() + suffix.size()) {
    return std::nullopt;
  }
  text = text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
  int number = 0;
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

void read_events(std::string_view text, RunRecord& record) {
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (base::trim(line).empty()) continue;
    auto event = base::parse_json_dict(line);
    if (event && event->contains("event")) record.events.push_back(std::move(event).value());
    else record.torn = true;
  }
}

void apply(const Dict& event, RunSummary& told) {
  std::string kind = base::text_of(event, "event");
  if (kind == "run_started") {
    told.started = base::number_of(event, "time", told.started);
    told.num_workers = base::int_of(event, "num_workers", told.num_workers);
    told.state = "lost";
    told.error.reset();
  } else if (kind == "attempt_started") {
    ++told.attempts;
    told.num_workers = base::int_of(event, "num_workers", told.num_workers);
  } else if (kind == "report") {
    told.reports.add(base::int_of(event, "attempt"), base::int_of(event, "index"));
  } else if (kind == "checkpoint_committed") {
    ++told.checkpoints;
  } else if (kind == "checkpoint_removed") {
    --told.checkpoints;
  } else if (kind == "run_finished") {
    told.state = base::text_of(event, "outcome", "finished");
    told.seconds = base::number_of(event, "seconds");
    if (std::string why = base::text_of(event, "error"); !why.empty()) told.error = why;
  }
}

}  // namespace

fs::path results_dir() {
  const char* results = std::getenv("TRIREME_RESULTS");
  if (results && *results) return results;
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : ".") / "trireme_results";
}

bool is_run_folder(const fs::path& path) {
  std::error_code failed;
  return fs::is_regular_file(path / storage::kRunFile, failed);
}

namespace {

Result<Dict> parse_run_file(std::string_view text, const std::string& path) {
  TRIREME_ASSIGN(auto run, base::parse_json_dict(text), "{}/run.json is damaged", path);
  constexpr std::int64_t kFormat = 1;
  if (std::int64_t format = base::int_of(run, "format", kFormat); format > kFormat) {
    return error("{} has format {}, this version reads up to {}; upgrade Trireme", path, format, kFormat);
  }
  return run;
}

}  // namespace

Result<Dict> read_run_file(const fs::path& path) {
  std::error_code failed;
  if (!fs::exists(path, failed))
    return error("the folder {} does not exist; `trireme runs` lists the runs", path.string());
  if (!is_run_folder(path)) {
    return error("{} is not a run folder: it has no run.json; pass the folder {{storage_path}}/{{name}}",
                 path.string());
  }
  TRIREME_ASSIGN(auto text, storage::read_file((path / storage::kRunFile).native()));
  return parse_run_file(text, path.string());
}

Result<RunRecord> read_run(const fs::path& path) {
  RunRecord record;
  record.path = path.string();
  TRIREME_ASSIGN(record.run, read_run_file(path));
  std::error_code failed;
  // A run that was created and never started has no event log yet.
  if (!fs::exists(path / storage::kEventsFile, failed)) return record;
  TRIREME_ASSIGN(auto text, storage::read_file((path / storage::kEventsFile).native()));
  read_events(text, record);
  return record;
}

Result<RunRecord> read_run(storage::Files& files, const std::string& path) {
  if (files.local()) return read_run(path);
  RunRecord record;
  record.path = path;
  TRIREME_ASSIGN(bool there, files.exists(path + "/" + storage::kRunFile));
  if (!there) return error("{} is not a run folder: it has no run.json", files.describe(path));
  TRIREME_ASSIGN(auto run, files.read(path + "/" + storage::kRunFile));
  TRIREME_ASSIGN(record.run, parse_run_file(run, files.describe(path)));
  TRIREME_ASSIGN(bool logged, files.exists(path + "/" + storage::kEventsFile));
  if (!logged) return record;
  TRIREME_ASSIGN(auto text, files.read(path + "/" + storage::kEventsFile));
  read_events(text, record);
  return record;
}

RunSummary summary(const RunRecord& record, bool active, double now) {
  RunSummary told;
  told.name = base::text_of(record.run, "name", fs::path(record.path).filename().string());
  told.id = base::text_of(record.run, "id");
  told.path = record.path;
  told.started = base::number_of(record.run, "created");
  told.state = "lost";
  for (const auto& event : record.events) apply(event, told);
  if (told.state == "lost") {
    if (active) told.state = "running";
    double last = record.events.empty() ? told.started : base::number_of(record.events.back(), "time", told.started);
    told.seconds = std::max(0.0, (active ? now : last) - told.started);
  }
  if (auto last = last_metrics(record)) told.last_metrics = *std::move(last);
  return told;
}

std::vector<Dict> metrics_of_all_ranks(const RunRecord& record) {
  // For each index of a rank the last report counts. An attempt that resumed from an earlier index discards the reports
  // after it.
  std::map<std::int64_t, std::map<std::int64_t, Dict>> ranks;
  for (const auto& event : record.events) {
    if (base::text_of(event, "event") != "report") continue;
    auto& history = ranks[base::int_of(event, "rank")];
    const std::int64_t index = base::int_of(event, "index");
    history.erase(history.lower_bound(index), history.end());
    if (base::dict_of(event, "metrics")) history[index] = event;
  }
  std::map<std::pair<std::int64_t, std::int64_t>, Dict> ordered;
  for (auto& [rank, history] : ranks) {
    for (auto& [index, event] : history) {
      Dict row{{"rank", rank}, {"index", index}, {"attempt", base::int_of(event, "attempt")}};
      row["time"] = base::number_of(event, "time");
      row["metrics"] = *base::dict_of(event, "metrics");
      ordered[{index, rank}] = std::move(row);
    }
  }
  std::vector<Dict> rows;
  for (auto& [key, row] : ordered) rows.push_back(std::move(row));
  return rows;
}

std::vector<Metrics> metrics_history(const RunRecord& record) {
  std::vector<Metrics> rows;
  for (const auto& row : metrics_of_all_ranks(record)) {
    if (base::int_of(row, "rank") == 0) rows.push_back(*base::dict_of(row, "metrics"));
  }
  return rows;
}

std::optional<Metrics> last_metrics(const RunRecord& record) {
  const Dict* last = nullptr;
  std::vector<const Dict*> found;  // by validations of its checkpoint
  std::int64_t index = -1;
  for (const auto& event : record.events) {
    const Dict* metrics = base::dict_of(event, "metrics");
    if (!metrics) continue;
    const std::string kind = base::text_of(event, "event");
    if (kind == "report" && base::int_of(event, "rank") == 0) {
      last = metrics;
      index = base::int_of(event, "index");
      found.clear();
    } else if (kind == "checkpoint_validated" && base::int_of(event, "index") == index) {
      found.push_back(metrics);
    }
  }
  if (!last) return std::nullopt;
  Metrics merged = *last;
  for (const Dict* each : found) {
    for (const auto& [key, value] : *each) merged[key] = value;
  }
  return merged;
}

Result<std::vector<KeptCheckpoint>> read_checkpoints(storage::Files& files, const RunRecord& record,
                                                     std::vector<std::string>* damaged) {
  TRIREME_ASSIGN(auto listing, checkpoint::list_committed(files, record.path));
  if (damaged) *damaged = std::move(listing.damaged);
  std::vector<KeptCheckpoint> kept;
  for (auto& [name, path, manifest] : listing.committed) {
    kept.push_back(
        {manifest.index, name, std::move(manifest.metrics), manifest.status, std::move(manifest.validation)});
  }
  CheckpointConfig config;
  if (const Dict* run_config = base::dict_of(record.run, "run_config")) {
    if (const Dict* recorded = base::dict_of(*run_config, "checkpoint_config")) {
      // Recorded by another version: order by age.
      if (auto read = base::checked_config<CheckpointConfig>(*recorded, "checkpoint_config")) config = *std::move(read);
    }
  }
  return ranked(std::move(kept), config);
}

Result<ReturnValue> read_return_value(storage::Files& files, const RunRecord& record) {
  ReturnValue returned;
  for (const auto& event : record.events) {
    if (base::text_of(event, "event") != "run_finished") continue;
    returned.pickled = base::flag_of(event, "return_value_pickled");
    const Value* value = event.find("return_value");
    returned.value = value ? *value : Value();
  }
  if (!returned.pickled) return returned;
  TRIREME_ASSIGN(auto pickle, files.read(record.path + "/" + storage::kReturnValueFile));
  returned.value = Bytes{std::move(pickle)};
  return returned;
}

std::vector<LogFile> log_files(const fs::path& run_path) {
  std::vector<LogFile> files;
  std::error_code failed;
  for (const auto& folder : fs::directory_iterator(run_path / "logs", failed)) {
    auto attempt = number_between(folder.path().filename().string(), "attempt_", "");
    if (!attempt) continue;
    for (const auto& file : fs::directory_iterator(folder.path(), failed)) {
      auto rank = number_between(file.path().filename().string(), "rank_", ".log");
      if (rank) files.push_back({*attempt, *rank, file.path().string()});
    }
  }
  std::sort(files.begin(), files.end(), [](const LogFile& a, const LogFile& b) {
    return std::tie(a.attempt, a.rank) < std::tie(b.attempt, b.rank);
  });
  return files;
}

}  // namespace trireme::control
