#include <fmt/format.h>

#include <filesystem>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "data/digest_verify.h"

namespace trireme::cli {
namespace {

std::string told(const data::EpochVerdict& verdict) {
  if (!verdict.problem.empty()) return "WRONG: " + verdict.problem;
  if (verdict.seen == verdict.size) return "every row once";
  return fmt::format("rows 0 to {} once, the rest not yet, or left out", verdict.seen);
}

void print_json(const std::vector<data::EpochVerdict>& verdicts) {
  List list;
  for (const auto& each : verdicts) {
    list.push_back(Dict{{"dataset", each.dataset},
                        {"epoch", each.epoch},
                        {"size", each.size},
                        {"seen", each.seen},
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
  const std::string folder = entry.path + "/data";
  if (!std::filesystem::exists(folder)) {
    return base::error("{} has no log of samples: give the trainer DataConfig(log_samples=True) to have one",
                       entry.path);
  }
  TRIREME_ASSIGN(const auto verdicts, data::verify_digests(folder));
  options.json ? print_json(verdicts) : print_table(verdicts);
  for (const auto& each : verdicts) {
    if (!each.problem.empty()) return kFailed;
  }
  return kDone;
}

}  // namespace trireme::cli
