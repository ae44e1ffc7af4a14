#include "data/digest_verify.h"

#include <algorithm>

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

// Workers that have finished although their log does not end with that.
void verify_ends(const std::string& name, const DatasetLog& log, const RunFacts& facts,
                 std::vector<EpochVerdict>& verdicts) {
  for (const auto& [attempt, rank] : facts.finished) {
    const auto ranks = log.attempts.find(attempt);
    const RankLog* mine =
        ranks != log.attempts.end() && ranks->second.contains(rank) ? &ranks->second.at(rank) : nullptr;
    if (mine && mine->finished) continue;
    EpochVerdict missing;
    missing.dataset = name;
    missing.epoch = mine && !mine->passes.empty() ? mine->passes.back().start.epoch : 0;
    missing.problem =
        fmt::format("rank {} finished attempt {}, but its log ends earlier: lines are missing", rank, attempt);
    const auto known = std::find_if(verdicts.begin(), verdicts.end(), [&](const EpochVerdict& each) {
      return each.dataset == name && each.epoch == missing.epoch;
    });
    if (known == verdicts.end()) {
      verdicts.push_back(std::move(missing));
    } else if (known->problem.empty()) {
      known->problem = std::move(missing.problem);
    }
  }
}

}  // namespace

base::Result<std::vector<EpochVerdict>> verify_digests(const std::string& folder, const RunFacts& facts) {
  TRIREME_ASSIGN(const auto datasets, read_digest_logs(folder));
  std::vector<EpochVerdict> verdicts;
  std::set<AttemptAndRank> logged;
  for (const auto& [name, log] : datasets) {
    verify_dataset(name, log, facts, verdicts);
    verify_ends(name, log, facts, verdicts);
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
