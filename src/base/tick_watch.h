#pragma once

#include <utility>

#include "base/clock.h"

namespace trireme::base {

// Tells the silence of others from the lateness of the one who listens. A process that was held up itself (a frozen
// container, a suspended machine, a debugger) has heard nothing meanwhile, which proves nothing about its peers: the
// time that it was late by does not count as their silence.
class TickWatch {
 public:
  // `began`: when the first period did.
  TickWatch(Seconds period, MonotonicTime began) : period_(period), last_(began) {}

  // At every tick: how much later than it was due it comes; 0 within what a busy machine does to any timer.
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
