#pragma once

#include <utility>

#include "base/clock.h"

namespace trireme::base {

// Distinguishes silent peers from a late listener. A process that was itself suspended (a frozen container, a suspended
// machine, a debugger) received nothing in that time, which proves nothing about its peers. The time by which it was
// late does not count as their silence.
class TickWatch {
 public:
  // `began`: the start of the first period.
  TickWatch(Seconds period, MonotonicTime began) : period_(period), last_(began) {}

  // Call at every tick. Returns how late the tick is; 0 if the delay is normal for a busy machine.
  MonotonicTime::duration late(MonotonicTime now) {
    const Seconds overslept = now - std::exchange(last_, now) - period_;
    if (overslept < period_ + kBusy) return {};
    return std::chrono::duration_cast<MonotonicTime::duration>(overslept);
  }

 private:
  static constexpr Seconds kBusy{0.2};

  Seconds period_;
  MonotonicTime last_;
};

}  // namespace trireme::base
