#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "data/digest_log.h"
#include "data/steps.h"

// The digest logs of a run as values: what each rank says that it has done, in each attempt.

namespace trireme::data {

struct LoggedStretch {
  Span span;
  std::int64_t rows = 0;
  std::uint64_t digest = 0;
};

struct LoggedEnd {
  std::int64_t at = 0;
  bool over = false;
};

struct LoggedPass {
  DigestContext context;
  PassStart start;  // its layout has no fragment_rows
  std::string fragments;
  std::vector<LoggedStretch> stretches;  // in the order of the file
  std::optional<LoggedEnd> end;
};

// One rank in one attempt.
struct RankLog {
  std::vector<LoggedPass> passes;
  // Its function has returned, with the next pass to begin at this epoch and row.
  std::optional<std::pair<std::int64_t, std::int64_t>> finished;
  std::string problem;  // lines that do not belong together
};

struct DatasetLog {
  std::map<std::string, std::vector<std::int64_t>> fragment_rows;  // by fragments_id()
  std::map<int, std::map<int, RankLog>> attempts;                  // by attempt and rank
};

// By the dataset's name. A line that is none is an error that names file and line.
base::Result<std::map<std::string, DatasetLog>> read_digest_logs(const std::string& folder);

}  // namespace trireme::data
