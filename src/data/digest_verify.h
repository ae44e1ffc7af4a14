#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/order.h"
#include "data/steps.h"

// After the fact: whether every row of an epoch was taken once, from the digest logs of all ranks and attempts.

namespace trireme::data {

// The digest of a stretch of an epoch when each of its rows is taken once.
std::uint64_t expected_digest(const Layout& layout, std::int64_t epoch, Span span);

struct EpochVerdict {
  std::string dataset;  // "valid (rank 1)" where every rank sees all rows
  std::int64_t epoch = 0;
  std::int64_t size = 0;  // rows of the dataset
  std::int64_t seen = 0;  // rows up to where the epoch went
  int attempts = 0;       // that it took
  std::string problem;    // empty: every row up to there was taken exactly once
};

// By dataset and epoch. What an attempt took after the checkpoint that the next one began with does not count.
base::Result<std::vector<EpochVerdict>> verify_digests(const std::string& folder);

}  // namespace trireme::data
