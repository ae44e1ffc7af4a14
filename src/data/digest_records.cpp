#include "data/digest_records.h"

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/json.h"
#include "storage/local_files.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// Files may be damaged: sums and products must not overflow.
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;
constexpr std::int64_t kMostWorkers = std::int64_t{1} << 20;

template <typename T>
base::Result<T> field(const Dict& line, const char* key) {
  const Value* found = line.find(key);
  const auto* value = found ? found->get_if<T>() : nullptr;
  if (!value) return base::error("'{}' is missing or has the wrong type", key);
  return *value;
}

base::Result<std::int64_t> number(const Dict& line, const char* key, std::int64_t least, std::int64_t most) {
  TRIREME_ASSIGN(const auto value, field<std::int64_t>(line, key));
  if (value < least || value > most) return base::error("invalid '{}': {}", key, value);
  return value;
}

base::Result<LoggedPass> parse_pass(const Dict& line, const std::string& dataset, int attempt) {
  LoggedPass pass;
  pass.context.dataset = dataset;
  pass.context.attempt = attempt;
  TRIREME_ASSIGN(const auto world, number(line, "world", 1, kMostWorkers));
  TRIREME_ASSIGN(const auto rank, number(line, "rank", 0, world - 1));
  TRIREME_ASSIGN(const auto max_world, number(line, "max_world", 0, kMostWorkers));
  TRIREME_ASSIGN(pass.context.whole, field<bool>(line, "whole"));
  TRIREME_ASSIGN(pass.start.epoch, number(line, "epoch", 0, kMostRows));
  TRIREME_ASSIGN(pass.start.begin, number(line, "begin", 0, kMostRows));
  TRIREME_ASSIGN(pass.start.loaded, field<bool>(line, "loaded"));
  TRIREME_ASSIGN(pass.fragments, field<std::string>(line, "fragments"));
  TRIREME_ASSIGN(pass.start.layout.shuffle_fragments, field<bool>(line, "shuffle_fragments"));
  TRIREME_ASSIGN(const auto seed, field<std::int64_t>(line, "seed"));
  TRIREME_ASSIGN(pass.start.layout.virtual_shards, number(line, "virtual_shards", 1, kMostRows));
  TRIREME_ASSIGN(pass.start.layout.window_rows, number(line, "window_rows", 0, kMostRows));
  TRIREME_ASSIGN(pass.start.cutting.batch_rows, number(line, "batch_rows", 1, kMostRows));
  TRIREME_ASSIGN(pass.start.cutting.drop_last, field<bool>(line, "drop_last"));
  TRIREME_ASSIGN(pass.start.cutting.pad, field<bool>(line, "pad_last"));
  TRIREME_ASSIGN(pass.start.cutting.equal, field<bool>(line, "equal"));
  pass.context.rank = static_cast<int>(rank);
  pass.context.world = static_cast<int>(world);
  pass.start.layout.seed = static_cast<std::uint64_t>(seed);
  pass.start.cutting.world = pass.context.whole ? 1 : pass.context.world;
  pass.start.cutting.max_world = static_cast<int>(max_world);
  return pass;
}

base::Result<LoggedStretch> parse_stretch(const Dict& line) {
  LoggedStretch stretch;
  TRIREME_ASSIGN(stretch.span.begin, number(line, "begin", 0, kMostRows));
  TRIREME_ASSIGN(stretch.span.end, number(line, "end", stretch.span.begin + 1, kMostRows));
  TRIREME_ASSIGN(stretch.rows, number(line, "rows", 0, kMostRows));
  TRIREME_ASSIGN(const auto digest, field<std::int64_t>(line, "digest"));
  stretch.digest = static_cast<std::uint64_t>(digest);
  return stretch;
}

base::Result<LoggedEnd> parse_end(const Dict& line) {
  LoggedEnd end;
  TRIREME_ASSIGN(end.at, number(line, "at", 0, kMostRows));
  TRIREME_ASSIGN(end.over, field<bool>(line, "over"));
  return end;
}

// Lines that do not belong to the open pass: lines are missing or out of order.
void misplaced(RankLog& log, int rank, int attempt, const std::string& kind, std::int64_t pass) {
  if (log.problem.empty()) {
    log.problem = fmt::format("rank {}, attempt {}: unexpected line \"{}\" in pass {}", rank, attempt, kind, pass);
  }
}

base::Result<void> take_line(DatasetLog& dataset, const std::string& name, int rank, const std::string& text) {
  TRIREME_ASSIGN(const Dict line, base::parse_json_dict(text));
  TRIREME_ASSIGN(const auto kind, field<std::string>(line, "kind"));
  TRIREME_ASSIGN(const auto counted, number(line, "attempt", 0, kMostRows));
  const int attempt = static_cast<int>(std::min<std::int64_t>(counted, std::numeric_limits<int>::max()));
  RankLog& log = dataset.attempts[attempt][rank];
  if (log.finished) misplaced(log, rank, attempt, kind, std::ssize(log.passes) - 1);
  if (kind == "finished") {
    TRIREME_ASSIGN(const auto epoch, number(line, "epoch", 0, kMostRows));
    TRIREME_ASSIGN(const auto row, number(line, "row", 0, kMostRows));
    log.finished = std::pair(epoch, row);
    return {};
  }
  TRIREME_ASSIGN(const auto pass, number(line, "pass", 0, kMostRows));
  const bool open = pass == std::ssize(log.passes) - 1 && !log.passes.back().end;
  if (kind == "pass") {
    TRIREME_ASSIGN(LoggedPass made, parse_pass(line, name, attempt));
    const bool next = pass == std::ssize(log.passes) && (pass == 0 || log.passes.back().end);
    if (!next || made.context.rank != rank) misplaced(log, rank, attempt, kind, pass);
    log.passes.push_back(std::move(made));
  } else if (kind == "rows") {
    TRIREME_ASSIGN(const LoggedStretch stretch, parse_stretch(line));
    if (!open) misplaced(log, rank, attempt, kind, pass);
    if (open) log.passes.back().stretches.push_back(stretch);
  } else if (kind == "end") {
    TRIREME_ASSIGN(const LoggedEnd end, parse_end(line));
    if (!open) misplaced(log, rank, attempt, kind, pass);
    if (open) log.passes.back().end = end;
  } else {
    return base::error("invalid 'kind': \"{}\"", kind);
  }
  return {};
}

base::Result<std::vector<std::int64_t>> read_fragment_rows(const fs::path& path) {
  TRIREME_ASSIGN(const std::string text, storage::read_file(path.native()));
  TRIREME_ASSIGN(const Dict dict, base::parse_json_dict(text), "could not read {}", path.native());
  const Value* rows = dict.find("fragment_rows");
  std::vector<std::int64_t> counts;
  std::int64_t all = 0;
  for (const auto& each : rows && rows->get_if<List>() ? *rows->get_if<List>() : List{Value()}) {
    const auto* count = each.get_if<std::int64_t>();
    if (!count || *count < 0 || *count > kMostRows - all) {
      return base::error("{} is not a valid list of a dataset's fragments", path.native());
    }
    all += *count;
    counts.push_back(*count);
  }
  return counts;
}

// Splits "train.3.jsonl" into "train" and 3.
std::optional<std::pair<std::string, int>> dataset_and_rank(const std::string& file) {
  if (!file.ends_with(".jsonl")) return {};
  const std::string stem = file.substr(0, file.size() - 6);
  const auto dot = stem.rfind('.');
  if (dot == std::string::npos || dot == 0) return {};
  const std::string rank = stem.substr(dot + 1);
  if (rank.empty() || rank.size() > 7 || rank.find_first_not_of("0123456789") != std::string::npos) return {};
  return std::pair(stem.substr(0, dot), std::stoi(rank));
}

}  // namespace

base::Result<std::map<std::string, DatasetLog>> read_digest_logs(const std::string& folder) {
  std::map<std::string, DatasetLog> datasets;
  std::error_code failed;
  if (!fs::exists(folder, failed) && !failed) return datasets;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    const auto found = dataset_and_rank(entry.path().filename());
    if (!found) continue;
    DatasetLog& dataset = datasets[found->first];
    std::ifstream file(entry.path());
    std::int64_t at = 0;
    for (std::string line; std::getline(file, line);) {
      ++at;
      TRIREME_TRY(take_line(dataset, found->first, found->second, line), "{}, line {}", entry.path().native(), at);
    }
  }
  if (failed) return base::error("could not list {}: {}", folder, failed.message());
  for (auto& [name, dataset] : datasets) {
    for (const auto& [attempt, ranks] : dataset.attempts) {
      for (const auto& [rank, log] : ranks) {
        for (const auto& pass : log.passes) {
          if (dataset.fragment_rows.contains(pass.fragments)) continue;
          const std::string id = fs::path(pass.fragments).filename();  // a damaged line must not leave this folder
          const fs::path path = fs::path(folder) / fmt::format("{}.{}.json", name, id);
          TRIREME_ASSIGN(auto rows, read_fragment_rows(path));
          if (fragments_id({.fragment_rows = rows}) != pass.fragments) {
            return base::error("{} does not match the fragments' ID in its name", path.native());
          }
          dataset.fragment_rows[pass.fragments] = std::move(rows);
        }
      }
    }
  }
  return datasets;
}

}  // namespace trireme::data
