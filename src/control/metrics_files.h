#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "trireme/value.h"

namespace trireme::control {

// Rank 0's reports for other tools: metrics.jsonl, one object per line, and metrics.csv, one row per report with nested
// metrics as "a/b" columns. Both start with step, time and attempt. A report that is repeated after a restart is
// written again, with another attempt.
class MetricsFiles {
 public:
  explicit MetricsFiles(std::string folder) : folder_(std::move(folder)) {}

  void append(const Dict& report);
  // A new column rewrites the whole table.
  base::Result<void> flush();
  // Rows that could not be written yet, and a way to drop them.
  std::size_t waiting() const { return rows_.size(); }
  void drop();

 private:
  using Row = std::vector<std::pair<std::string, std::string>>;

  base::Result<void> read_columns();
  base::Result<void> widen();

  std::string folder_;
  std::vector<std::string> columns_;
  bool columns_known_ = false;
  std::string lines_;
  std::vector<Row> rows_;
};

}  // namespace trireme::control
