#pragma once

#include <string>

#include "api/data_rate.h"
#include "control/report_count.h"
#include "trireme/value.h"

namespace trireme::api {

// The progress of a run as one line, from the events that its driver receives; the same line in Python and C++.
class Progress {
 public:
  void count(const Dict& event);
  std::int64_t reports() const { return reports_.count(); }
  // "41.0 s  attempt 1  4 workers  812 reports  loss 0.291", `seconds` since the run started.
  std::string text(double seconds) const;

 private:
  std::int64_t attempt_ = 0;
  std::int64_t workers_ = 0;
  control::ReportCount reports_;
  Dict metrics_;  // rank 0's newest
  DataRate data_rate_;
};

}  // namespace trireme::api
