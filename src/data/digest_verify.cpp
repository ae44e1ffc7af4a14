#include "data/digest_verify.h"

#include <algorithm>

#include "base/text.h"
#include "data/digest_history.h"
#include "data/digest_records.h"

namespace trireme::data {
namespace {

int world_of(const DigestHistory::Ranks& ranks) {
  for (const auto& [rank, log] : ranks) {
    if (!log.passes.empty()) return log.passes.front().context.world;
  }
  return 0;
}

// Includes attempts that consumed nothing: they do not log it.
bool is_whole(const DatasetLog& log) {
  for (const auto& [attempt, ranks] : log.attempts) {
    for (const auto& [rank, mine] : ranks) {
      if (!mine.passes.empty()) return mine.passes.front().context.whole;
    }
  }
  return false;
}

void verify_dataset(const std::string& name, const DatasetLog& log, const RunFacts& facts,
                    std::vector<EpochVerdict>& verdicts) {
  if (!is_whole(log)) {
    DigestHistory history(name, log, facts);
    for (const auto& [attempt, ranks] : log.attempts) history.add_attempt(attempt, ranks);
    history.tell(verdicts);
    return;
  }
  std::map<int, DigestHistory> alone;
  int world = 0;  // of the previous attempt
  for (const auto& [attempt, ranks] : log.attempts) {
    for (const auto& [rank, mine] : ranks) {
      auto [found, added] = alone.try_emplace(rank, fmt::format("{} (rank {})", name, rank), log, facts);
      DigestHistory& history = found->second;
      // The other ranks continued while this rank did not exist.
      if (world > 0 && world <= rank) history.break_off(verdicts);
      history.add_attempt(attempt, {{rank, mine}}, true);
    }
    if (const int now = world_of(ranks); now > 0) world = now;
  }
  for (auto& [rank, history] : alone) history.tell(verdicts);
}

const RankLog* find_rank(const DatasetLog& log, const AttemptAndRank& who) {
  const auto ranks = log.attempts.find(who.first);
  if (ranks == log.attempts.end()) return nullptr;
  const auto rank = ranks->second.find(who.second);
  return rank == ranks->second.end() ? nullptr : &rank->second;
}

void add_problem(const std::string& name, std::int64_t epoch, std::string problem,
                 std::vector<EpochVerdict>& verdicts) {
  const auto known = std::find_if(verdicts.begin(), verdicts.end(), [&](const EpochVerdict& each) {
    return each.dataset == name && each.epoch == epoch;
  });
  if (known != verdicts.end()) {
    if (known->problem.empty()) known->problem = std::move(problem);
    return;
  }
  EpochVerdict added;
  added.dataset = name;
  added.epoch = epoch;
  added.problem = std::move(problem);
  verdicts.push_back(std::move(added));
}

// In the epoch that the rank's log ends with.
void add_missing(const std::string& name, const RankLog* log, std::string problem,
                 std::vector<EpochVerdict>& verdicts) {
  const std::int64_t epoch = log && !log->passes.empty() ? log->passes.back().start.epoch : 0;
  add_problem(name, epoch, std::move(problem), verdicts);
}

// Whether ranks read a part or all rows is the same in all attempts.
void verify_split(const std::string& name, const DatasetLog& log, std::vector<EpochVerdict>& verdicts) {
  const bool whole = is_whole(log);
  for (const auto& [attempt, ranks] : log.attempts) {
    for (const auto& [rank, mine] : ranks) {
      for (const auto& pass : mine.passes) {
        if (pass.context.whole == whole) continue;
        add_problem(name, pass.start.epoch,
                    fmt::format("rank {} of attempt {} read {}, unlike ranks before it", rank, attempt,
                                whole ? "a part of the rows" : "all rows"),
                    verdicts);
      }
    }
  }
}

// Workers that have finished although their log does not end with that.
void verify_ends(const std::string& name, const DatasetLog& log, const RunFacts& facts,
                 std::vector<EpochVerdict>& verdicts) {
  for (const auto& who : facts.finished) {
    const RankLog* mine = find_rank(log, who);
    if ((mine && mine->finished) || !facts.logs(who.first, name)) continue;
    const auto problem = fmt::format("rank {} finished attempt {}, but {}: lines are missing", who.second, who.first,
                                     mine ? "its log ends earlier" : "it has no log");
    add_missing(name, mine, problem, verdicts);
  }
}

// Workers that reported more rows than their log has. A line is written before the report that counts its rows, so
// this holds for a killed worker too.
void verify_counts(const std::string& name, const DatasetLog& log, const RunFacts& facts,
                   std::vector<EpochVerdict>& verdicts) {
  for (const auto& [who, datasets] : facts.logged) {
    const auto told = datasets.find(name);
    if (told == datasets.end()) continue;
    const RankLog* mine = find_rank(log, who);
    std::int64_t rows = 0;
    for (const auto& pass : mine ? mine->passes : std::vector<LoggedPass>()) {
      for (const auto& stretch : pass.stretches) rows += stretch.rows;
    }
    if (rows >= told->second) continue;
    const auto problem =
        fmt::format("rank {} had logged {} in attempt {}, but its log has {}: lines are missing", who.second,
                    base::count_of(static_cast<std::size_t>(told->second), "row"), who.first, rows);
    add_missing(name, mine, problem, verdicts);
  }
}

}  // namespace

base::Result<std::vector<EpochVerdict>> verify_digests(const std::string& folder, const RunFacts& facts) {
  TRIREME_ASSIGN(auto datasets, read_digest_logs(folder));
  // All logs of a dataset may be missing.
  for (const auto& [attempt, names] : facts.datasets) {
    for (const auto& name : names) datasets.try_emplace(name);
  }
  for (const auto& [who, rows] : facts.logged) {
    for (const auto& [name, count] : rows) datasets.try_emplace(name);
  }
  std::vector<EpochVerdict> verdicts;
  std::set<AttemptAndRank> logged;
  for (const auto& [name, log] : datasets) {
    verify_dataset(name, log, facts, verdicts);
    verify_split(name, log, verdicts);
    verify_ends(name, log, facts, verdicts);
    verify_counts(name, log, facts, verdicts);
    for (const auto& [attempt, ranks] : log.attempts) {
      for (const auto& [rank, mine] : ranks) logged.emplace(attempt, rank);
    }
  }
  for (const auto& [attempt, rank] : facts.took) {
    if (logged.contains({attempt, rank})) continue;
    EpochVerdict missing;
    missing.dataset = "(unknown)";
    missing.problem = fmt::format("rank {} of attempt {} reported consumed rows, but no log has them", rank, attempt);
    verdicts.push_back(std::move(missing));
  }
  return verdicts;
}

}  // namespace trireme::data
