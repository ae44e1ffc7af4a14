#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

// After the fact: whether every row of an epoch was taken once, from the digest logs of all ranks and attempts.

namespace trireme::data {

using AttemptAndRank = std::pair<int, int>;

// What is known about a run beside its digest logs. Lines that are missing at the end of a log look like a worker that
// was killed, unless somebody knows that it was not.
struct RunFacts {
  std::set<AttemptAndRank> finished;  // whose training function has returned
  std::set<AttemptAndRank> took;      // who has reported rows that it had taken
};

struct EpochVerdict {
  enum class End { kOpen, kLeft, kOver };

  std::string dataset;  // "valid (rank 1)" where every rank sees all rows
  std::int64_t epoch = 0;
  std::int64_t size = 0;   // rows of the dataset
  std::int64_t first = 0;  // where this run began it: not at 0 with a checkpoint of another run
  std::int64_t seen = 0;   // rows up to where the epoch went
  int attempts = 0;        // that it took
  End end = End::kOpen;
  std::string problem;  // empty: every row from the first one up to there was taken exactly once
};

// By dataset and epoch. What an attempt took after the checkpoint that the next one began with does not count.
base::Result<std::vector<EpochVerdict>> verify_digests(const std::string& folder, const RunFacts& facts = {});

}  // namespace trireme::data
