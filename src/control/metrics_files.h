#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "trireme/value.h"

namespace trireme::control {

// Rank 0's reports for other tools: metrics.jsonl, one object a line, and metrics.csv, one row a report with nested
// metrics as "a/b" columns. Both begin with step, time and attempt. A report that a restart repeats is there again; the
// attempt tells them apart.
class MetricsFiles {
 public:
  explicit MetricsFiles(std::string folder) : folder_(std::move(folder)) {}

  void append(const Dict& report);
  // A new column makes the table be written anew, as a whole.
  base::Result<void> flush();
  // Rows that could not be written yet, and an end to keeping them.
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
