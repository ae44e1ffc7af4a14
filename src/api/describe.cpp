#include "api/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "api/line_folder.h"
#include "base/clock.h"
#include "base/dict_fields.h"
#include "base/json.h"
#include "base/text.h"
#include "storage/run_names.h"

namespace trireme::api {
namespace {

using base::count_of;
using base::dict_of;
using base::flag_of;
using base::int_of;
using base::number_of;
using base::text_of;

using Rows = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t kMaxHeadline = 300;
constexpr std::size_t kMaxCell = 100;

std::string counted(const Dict& dict, std::string_view key, std::string_view noun) {
  return count_of(std::max<std::int64_t>(0, int_of(dict, key)), noun);
}

std::string run_started(const Dict& event) {
  std::string from;
  if (std::string path = text_of(event, "checkpoint"); !path.empty()) {
    from = fmt::format(" from {}", path.substr(path.rfind('/') + 1));
  }
  const bool resumed = flag_of(event, "resumed");
  std::string line =
      fmt::format("trireme run {}{}: {} on {}, folder {}", text_of(event, "name"),
                  resumed         ? fmt::format(" (continued{})", from)
                  : !from.empty() ? fmt::format(" ({})", from.substr(1))
                                  : "",
                  counted(event, "num_workers", "worker"),
                  text_of(event, "engine", text_of(event, "host", "this machine")), text_of(event, "path"));
  if (std::string storage = text_of(event, "storage"); !storage.empty()) line += ", storage " + storage;
  return line;
}

std::string training_started(const Dict& event) {
  std::int64_t attempt = int_of(event, "attempt");
  return fmt::format("{}{} running after {:.2f} s", attempt > 0 ? fmt::format("attempt {}: ", attempt) : "",
                     counted(event, "num_workers", "worker"), number_of(event, "seconds"));
}

std::string checkpoint_committed(const Dict& event) {
  std::string line = text_of(event, "name", "checkpoint") + " committed";
  const Dict* metrics = dict_of(event, "metrics");
  return metrics && !metrics->empty() ? fmt::format("{} ({})", line, metrics_text(*metrics)) : line;
}

std::string checkpoint_validated(const Dict& event) {
  const std::string name = text_of(event, "name", "checkpoint");
  const std::string status = text_of(event, "status");
  if (status != "VALIDATED") {
    return fmt::format("warning: {} was not validated: {}", name,
                       headline(text_of(event, "message", status == "VALIDATION_TIMEOUT" ? "timed out" : "failed")));
  }
  const Dict* metrics = dict_of(event, "metrics");
  return metrics && !metrics->empty() ? fmt::format("{} validated ({})", name, metrics_text(*metrics))
                                      : name + " validated";
}

std::optional<std::string> worker_failed(const Dict& event) {
  // Errors caused by the first one are attached to the result instead.
  if (flag_of(event, "collateral") || event.contains("same_as")) return std::nullopt;
  std::string type = text_of(event, "error_type");
  std::string message = headline(text_of(event, "message"));
  if (!type.empty()) message = message.empty() ? type : type + ": " + message;
  std::vector<std::string> where;
  if (int_of(event, "pid") > 0) where.push_back(fmt::format("pid {}", int_of(event, "pid")));
  if (std::string host = text_of(event, "host"); !host.empty()) where.push_back("host " + host);
  std::string line = fmt::format("rank {}{} failed: {}", int_of(event, "rank"),
                                 where.empty() ? "" : fmt::format(" ({})", base::join(where, ", ")), message);
  std::vector<int> alike;
  if (const Value* ranks = event.find("alike"); ranks && ranks->get_if<List>()) {
    for (const auto& rank : ranks->as_list()) alike.push_back(rank.get<int>());
  }
  return alike.empty() ? line : fmt::format("{}; same error on rank {}", line, base::rank_list(alike));
}

std::optional<std::string> attempt_failed(const Dict& event) {
  std::int64_t attempt = int_of(event, "attempt");
  std::int64_t limit = int_of(event, "max_failures");
  std::int64_t failures = int_of(event, "failures");
  if (text_of(event, "next") == "restart") {
    std::string used = limit < 0 ? fmt::format("failure {}, no limit", failures)
                                 : fmt::format("{} of {} used", failures, count_of(limit, "failure"));
    return fmt::format("attempt {} failed ({}); restarting", attempt, used);
  }
  // Omitted if restarts are disabled or the budget did not end the run: the lines around it then suffice.
  if (limit <= 0 || failures <= limit) return std::nullopt;
  return fmt::format("attempt {} failed; {} = {} is used up", attempt, text_of(event, "budget", "max_failures"), limit);
}

std::string restarted(const Dict& event) {
  std::string line =
      fmt::format("restarted {} in {:.2f} s: {} kept, {} new", text_of(event, "kind"), number_of(event, "seconds"),
                  counted(event, "kept", "worker"), int_of(event, "replaced"));
  const std::string checkpoint = text_of(event, "checkpoint");
  return line + (checkpoint.empty() ? ", from the beginning" : ", from " + checkpoint);
}

std::string pausing(const Dict& event) {
  return fmt::format("{} in a row without progress: the next attempt starts in {} s",
                     counted(event, "failures", "failure"), base::amount(number_of(event, "seconds")));
}

std::string resizing(const Dict& event) {
  return fmt::format("resizing from {} to {} ({})", int_of(event, "from"), counted(event, "to", "worker"),
                     text_of(event, "why"));
}

std::vector<int> ranks_of(const Dict& event) {
  std::vector<int> ranks;
  const Value* value = event.find("ranks");
  const List* list = value ? value->get_if<List>() : nullptr;
  for (const auto& rank : list ? *list : List()) {
    if (const auto* number = rank.get_if<std::int64_t>()) ranks.push_back(static_cast<int>(*number));
  }
  return ranks;
}

std::string preemption_announced(const Dict& event) {
  const auto ranks = ranks_of(event);
  return fmt::format("{} {} will be preempted in {} s: {}", ranks.size() == 1 ? "rank" : "ranks",
                     base::rank_list(ranks), base::amount(number_of(event, "seconds")), text_of(event, "why"));
}

std::optional<std::string> hang_detected(const Dict& event) {
  // Otherwise the failure event reports the same.
  if (text_of(event, "next") != "warn") return std::nullopt;
  return fmt::format("warning: {}; all stacks: {}", text_of(event, "summary"), text_of(event, "path"));
}

std::string run_finished(const Dict& event) {
  std::string line = fmt::format("run {} after {}", text_of(event, "outcome", "ended"),
                                 base::duration_text(number_of(event, "seconds")));
  if (int_of(event, "attempts") > 1) line += ", " + counted(event, "attempts", "attempt");
  if (event.contains("reports")) line += ", " + counted(event, "reports", "report");
  std::string error = headline(text_of(event, "error"));
  // The error of a worker was already shown by its failure event.
  return error.empty() || error.starts_with("rank ") ? line : line + ": " + error;
}

std::optional<std::string> output(const Dict& event) {
  OutputLine line{.ranks = ranks_of(event),
                  .line = text_of(event, "line"),
                  .repeats = static_cast<int>(int_of(event, "repeats", 1))};
  return to_text(line);
}

using Teller = std::function<std::optional<std::string>(const Dict&)>;

const std::unordered_map<std::string, Teller>& tellers() {
  static const std::unordered_map<std::string, Teller> table = {
      {"run_started", run_started},
      {"training_started", training_started},
      {"checkpoint_committed", checkpoint_committed},
      {"checkpoint_validated", checkpoint_validated},
      {"worker_failed", worker_failed},
      {"attempt_failed", attempt_failed},
      {"restarted", restarted},
      {"pausing", pausing},
      {"resizing", resizing},
      {"preemption_announced", preemption_announced},
      {"hang_detected", hang_detected},
      {"run_finished", run_finished},
      {"output", output},
      {"warning", [](const Dict& event) { return "warning: " + text_of(event, "message"); }},
      {"stop_requested",
       [](const Dict& event) {
         std::string why = text_of(event, "why");
         return why.empty() ? std::string("stop requested") : "stop requested: " + why;
       }},
  };
  return table;
}

void add_metric_rows(const Dict& metrics, const std::string& prefix, Rows& rows) {
  for (const auto& [name, value] : metrics) {
    const Dict* nested = value.get_if<Dict>();
    if (nested && !nested->empty()) add_metric_rows(*nested, prefix + name + "/", rows);
    else rows.emplace_back(prefix + name, value_text(value));
  }
}

}  // namespace

std::optional<std::string> describe(const Dict& event) {
  auto teller = tellers().find(text_of(event, "event"));
  if (teller == tellers().end()) return std::nullopt;
  return teller->second(event);
}

std::string headline(const std::string& text) {
  std::string_view line = base::trim(text);
  return shortened(std::string(base::trim(line.substr(0, line.find('\n')))), kMaxHeadline);
}

std::string shortened(std::string text, std::size_t size) {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return text.substr(0, size) + "...";
}

std::string value_text(const Value& value) {
  if (const auto* number = value.get_if<double>()) return fmt::format("{:.6g}", *number);
  if (const auto* flag = value.get_if<bool>()) return *flag ? "yes" : "no";
  if (const auto* text = value.get_if<std::string>()) return shortened(*text, kMaxCell);
  if (const auto* bytes = value.get_if<Bytes>()) return count_of(bytes->data.size(), "byte");
  return shortened(base::to_json(value), kMaxCell);
}

Rows metric_rows(const Dict& metrics) {
  Rows rows;
  add_metric_rows(metrics, "", rows);
  return rows;
}

std::string metrics_text(const Dict& metrics) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> parts;
  for (auto& [name, value] : metric_rows(metrics)) {
    if (parts.size() == kShown) {
      parts.emplace_back("...");
      break;
    }
    parts.push_back(name + " " + value);
  }
  return base::join(parts, ", ");
}

Rows first_metric_rows(const Dict& metrics, std::string_view where) {
  constexpr std::size_t kShown = 20;
  Rows rows = metric_rows(metrics);
  if (rows.size() <= kShown) return rows;
  const auto hidden = static_cast<std::int64_t>(rows.size() - kShown);
  rows.resize(kShown);
  rows.emplace_back("...", fmt::format("{} in {}", count_of(hidden, "more metric"), where));
  return rows;
}

std::string two_columns(const Rows& rows) {
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  std::string text;
  for (const auto& [name, value] : rows) text += fmt::format("  {:<{}}  {}\n", name, width, value);
  return text;
}

std::string result_table(const Dict& outcome) {
  Rows rows = {{"outcome", text_of(outcome, "outcome", "unknown")},
               {"time", base::duration_text(number_of(outcome, "seconds"))},
               {"attempts", std::to_string(int_of(outcome, "attempts"))},
               {"reports", std::to_string(int_of(outcome, "reports"))}};
  if (std::string error = headline(text_of(outcome, "error")); !error.empty()) rows.emplace_back("error", error);
  if (const Dict* metrics = dict_of(outcome, "metrics")) {
    for (auto& row : first_metric_rows(*metrics, storage::kMetricsTable)) rows.push_back(std::move(row));
  }
  const std::string storage = text_of(outcome, "storage");
  if (std::string checkpoint = text_of(outcome, "checkpoint"); !checkpoint.empty()) {
    const bool stored = !storage.empty() && flag_of(outcome, "checkpoint_in_storage");
    rows.emplace_back("checkpoint", stored ? storage + checkpoint.substr(checkpoint.rfind('/')) : checkpoint);
  }
  if (!storage.empty()) rows.emplace_back("storage", storage);
  if (std::string path = text_of(outcome, "path"); !path.empty()) rows.emplace_back("folder", path);
  return two_columns(rows);
}

}  // namespace trireme::api
