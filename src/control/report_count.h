#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::control {

// How many reports a run has made: ranks report side by side, so it is the number of the furthest rank. What an attempt
// repeats after a restart is not counted twice, and a continued run counts on. The terminal, the result, the event log
// and the command line all show this number.
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
