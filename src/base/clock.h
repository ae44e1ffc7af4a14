#pragma once

#include <chrono>
#include <cstdint>
#include <string>

// Time is passed in: code that reads the clock itself can only be tested by waiting.

namespace trireme::base {

using Seconds = std::chrono::duration<double>;
using MonotonicTime = std::chrono::steady_clock::time_point;

// For timers and time points, which count in integers.
inline std::chrono::nanoseconds nanoseconds(Seconds seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(seconds);
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime now() const = 0;
  // Seconds since 1970, only for logs and file names: this clock may jump.
  virtual double wall() const = 0;
};

class SystemClock final : public Clock {
 public:
  MonotonicTime now() const override { return std::chrono::steady_clock::now(); }
  double wall() const override {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
};

// Time since boot, including suspends, because other machines keep waiting during a suspend.
Seconds since_boot();

// "2026-11-15_19-34-06" in local time.
std::string timestamp_name(double wall);
// "420 ms", "12.3 s", "4 min 10 s".
std::string duration_text(double seconds);

}  // namespace trireme::base
