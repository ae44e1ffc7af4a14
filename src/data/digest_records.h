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

// The parsed digest logs of a run: what each rank reports about each attempt.

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
  PassStart start;  // without the layout's fragment_rows
  std::string fragments;
  std::vector<LoggedStretch> stretches;  // in file order
  std::optional<LoggedEnd> end;
};

// One rank in one attempt.
struct RankLog {
  std::vector<LoggedPass> passes;
  // Its function has returned; the next pass would start at this epoch and row.
  std::optional<std::pair<std::int64_t, std::int64_t>> finished;
  std::string problem;  // if lines do not belong together
};

struct DatasetLog {
  std::map<std::string, std::vector<std::int64_t>> fragment_rows;  // by fragments_id()
  std::map<int, std::map<int, RankLog>> attempts;                  // by attempt and rank
};

// By dataset name; none if the folder does not exist. An invalid line is an error that names the file and line.
base::Result<std::map<std::string, DatasetLog>> read_digest_logs(const std::string& folder);

}  // namespace trireme::data
