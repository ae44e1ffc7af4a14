#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

// Checks afterwards that every row of an epoch was consumed once, from the digest logs of all ranks and attempts.

namespace trireme::data {

using AttemptAndRank = std::pair<int, int>;

// Facts about a run that are not in its digest logs. Without them, missing lines at the end of a log look like a worker
// that was killed.
struct RunFacts {
  std::set<AttemptAndRank> finished;  // training function has returned
  std::set<AttemptAndRank> took;      // reported consumed rows
  // By attempt: the datasets that its ranks log. An attempt that is not here logs all datasets that have a log.
  std::map<int, std::set<std::string>> datasets;
  // Rows by dataset that the log of this rank had in its last report.
  std::map<AttemptAndRank, std::map<std::string, std::int64_t>> logged;

  bool logs(int attempt, const std::string& dataset) const {
    const auto found = datasets.find(attempt);
    return found == datasets.end() || found->second.contains(dataset);
  }
};

struct EpochVerdict {
  enum class End { kOpen, kLeft, kOver };

  std::string dataset;  // "valid (rank 1)" if every rank reads all rows
  std::int64_t epoch = 0;
  std::int64_t size = 0;   // rows of the dataset
  std::int64_t first = 0;  // where this run started; not 0 with a checkpoint of another run
  std::int64_t seen = 0;   // rows up to the end of the epoch's last pass
  int attempts = 0;        // number of attempts
  End end = End::kOpen;
  std::string problem;  // empty: every row from `first` to there was consumed exactly once
};

// By dataset and epoch. Rows that an attempt consumed after the checkpoint of the next attempt do not count. A folder
// that does not exist has no logs.
base::Result<std::vector<EpochVerdict>> verify_digests(const std::string& folder, const RunFacts& facts = {});

}  // namespace trireme::data
