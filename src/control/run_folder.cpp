#include "control/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <tuple>

#include "base/json.h"
#include "base/text.h"
#include "control/event_fields.h"

namespace trireme::control {
namespace {

namespace fs = std::filesystem;
using base::error;
using base::Result;

Result<std::string> read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return base::system_error(path.string(), errno);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return error("could not read {}", path.string());
  return text;
}

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
  std::string kind = text_of(event, "event");
  if (kind == "run_started") {
    told.started = number_of(event, "time", told.started);
    told.num_workers = int_of(event, "num_workers", told.num_workers);
    told.state = "lost";
    told.error.reset();
  } else if (kind == "attempt_started") {
    ++told.attempts;
    told.num_workers = int_of(event, "num_workers", told.num_workers);
  } else if (kind == "report") {
    ++told.reports;
    const Dict* metrics = dict_of(event, "metrics");
    if (metrics && int_of(event, "rank") == 0) told.last_metrics = *metrics;
  } else if (kind == "checkpoint_committed") {
    ++told.checkpoints;
  } else if (kind == "run_finished") {
    told.state = text_of(event, "outcome", "finished");
    told.seconds = number_of(event, "seconds");
    if (std::string why = text_of(event, "error"); !why.empty()) told.error = why;
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
  return fs::is_regular_file(path / "run.json", failed);
}

Result<Dict> read_run_file(const fs::path& path) {
  std::error_code failed;
  if (!fs::exists(path, failed)) return error("there is no folder {}; `trireme runs` lists the runs", path.string());
  if (!is_run_folder(path)) {
    return error("{} is not the folder of a run: it has no run.json; give the folder {{storage_path}}/{{name}}",
                 path.string());
  }
  TRIREME_ASSIGN(auto text, read_text(path / "run.json"));
  TRIREME_ASSIGN(auto run, base::parse_json_dict(text), "{} is damaged", (path / "run.json").string());
  constexpr std::int64_t kFormat = 1;
  if (std::int64_t format = int_of(run, "format", kFormat); format > kFormat) {
    return error("{} has format {}, this version reads up to {}; upgrade Trireme", path.string(), format, kFormat);
  }
  return run;
}

Result<RunRecord> read_run(const fs::path& path) {
  RunRecord record;
  record.path = path.string();
  TRIREME_ASSIGN(record.run, read_run_file(path));
  std::error_code failed;
  // A run that was created and never started has no event log yet.
  if (!fs::exists(path / "events.jsonl", failed)) return record;
  TRIREME_ASSIGN(auto text, read_text(path / "events.jsonl"));
  read_events(text, record);
  return record;
}

RunSummary summary(const RunRecord& record, bool active, double now) {
  RunSummary told;
  told.name = text_of(record.run, "name", fs::path(record.path).filename().string());
  told.id = text_of(record.run, "id");
  told.path = record.path;
  told.started = number_of(record.run, "created");
  told.state = "lost";
  for (const auto& event : record.events) apply(event, told);
  if (told.state == "lost") {
    if (active) told.state = "running";
    double last = record.events.empty() ? told.started : number_of(record.events.back(), "time", told.started);
    told.seconds = std::max(0.0, (active ? now : last) - told.started);
  }
  return told;
}

std::vector<Metrics> metrics_history(const RunRecord& record) {
  // For each number the last report counts, and an attempt that went on from earlier has undone what came after.
  std::map<std::int64_t, Metrics> history;
  for (const auto& event : record.events) {
    if (text_of(event, "event") != "report" || int_of(event, "rank") != 0) continue;
    const std::int64_t index = int_of(event, "index");
    history.erase(history.lower_bound(index), history.end());
    if (const Dict* metrics = dict_of(event, "metrics")) history[index] = *metrics;
  }
  std::vector<Metrics> rows;
  for (auto& [index, metrics] : history) rows.push_back(std::move(metrics));
  return rows;
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
