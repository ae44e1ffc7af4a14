#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::control {

// The number of reports of a run: that of the furthest rank, because all ranks report. Reports that are repeated after
// a restart count once, and a continued run continues counting. The terminal, the result, the event log and the command
// line all show this number.
class ReportCount {
 public:
  // Whether the count has changed.
  bool add(std::int64_t attempt, std::int64_t index) {
    const std::int64_t before = count_;
    count_ = attempt == attempt_ ? std::max(count_, index + 1) : index + 1;
    attempt_ = attempt;
    return count_ != before;
  }
  std::int64_t count() const { return count_; }

  bool operator==(const ReportCount&) const = default;

 private:
  std::int64_t attempt_ = -1;
  std::int64_t count_ = 0;
};

}  // namespace trireme::control
