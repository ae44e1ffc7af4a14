#pragma once

#include <atomic>
#include <functional>

#include "base/clock.h"
#include "unit/engine/testing.h"

namespace trireme::tests {

// A clock that the test advances. Timers still fire in real time and then read this clock.
class FakeClock final : public base::Clock {
 public:
  base::MonotonicTime now() const override {
    ++readers_;
    return base::MonotonicTime(std::chrono::nanoseconds(now_.load()));
  }
  double wall() const override { return 1e9 + static_cast<double>(now_.load()) * 1e-9; }

  void advance(double seconds) { now_ += static_cast<std::int64_t>(seconds * 1e9); }
  // Until it was read N more times: a periodic check has seen the time that is set.
  bool wait_for_readers(
      int count, const std::function<bool()>& enough = [] { return false; }) const {
    const std::int64_t before = readers_;
    return engine::testing::eventually([&] { return readers_ >= before + count || enough(); });
  }

 private:
  std::atomic<std::int64_t> now_ = std::int64_t{1'000'000} * 1'000'000'000;
  mutable std::atomic<std::int64_t> readers_ = 0;
};

}  // namespace trireme::tests
