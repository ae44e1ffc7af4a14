#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "base/clock.h"

namespace trireme::base {

// Prints one line if an operation takes long, and nothing if it is quick. Thread-safe.
class WaitingNote {
 public:
  using Print = std::function<void(const std::string& line)>;
  // `clock` outlives it.
  WaitingNote(std::string line, const Clock& clock, Print print)
      : line_(std::move(line)), clock_(clock), print_(std::move(print)), began_(clock.now()) {}

  // Call it regularly during the operation.
  void tick() {
    if (clock_.now() - began_ < kPatience || printed_.exchange(true)) return;
    print_(line_);
  }

 private:
  static constexpr Seconds kPatience{1.0};

  std::string line_;
  const Clock& clock_;
  Print print_;
  MonotonicTime began_;
  std::atomic<bool> printed_ = false;
};

}  // namespace trireme::base
