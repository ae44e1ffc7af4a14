#include "base/waiting_note.h"

#include <doctest/doctest.h>

#include <vector>

namespace waiting_note_test {

using namespace trireme;
using namespace trireme::base;

namespace {

class HandClock final : public base::Clock {
 public:
  base::MonotonicTime now() const override { return now_; }
  double wall() const override { return 0; }
  void pass(double seconds) {
    now_ += std::chrono::duration_cast<base::MonotonicTime::duration>(base::Seconds(seconds));
  }

 private:
  base::MonotonicTime now_;
};

}  // namespace

TEST_CASE("the note is printed once for a long wait, and not for a short one") {
  HandClock clock;
  std::vector<std::string> told;
  WaitingNote note("counting", clock, [&](const std::string& line) { told.push_back(line); });
  note.tick();
  clock.pass(0.9);
  note.tick();
  CHECK(told.empty());
  clock.pass(0.2);
  note.tick();
  clock.pass(10);
  note.tick();
  CHECK(told == std::vector<std::string>{"counting"});
}

}  // namespace waiting_note_test
