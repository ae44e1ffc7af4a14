#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace trireme::api {

// One line of output: printed by each of these ranks, `repeats` times in a row.
struct OutputLine {
  std::vector<int> ranks;  // ascending
  std::string line;
  int repeats = 1;

  bool operator==(const OutputLine&) const = default;
};

// "[rank 0-2,5] loading", "[rank 1] retry (repeated 37 times)".
std::string to_text(const OutputLine& output);

// Makes the output of many ranks readable: equal lines of several ranks are merged into one, and repeats of a line are
// counted. Every line is shown, and the lines of one rank keep their order.
//
// A line waits kJoinWindow for other ranks to print it too. Repeats of a line that was already shown wait
// kRepeatWindow: only the count is new.
class LineFolder {
 public:
  static constexpr base::Seconds kJoinWindow{0.15};
  static constexpr base::Seconds kRepeatWindow{3.0};
  // Above this number of waiting lines the oldest are released early, to bound the memory of the driver.
  static constexpr std::size_t kMaxWaiting = 2000;

  // A line that all `num_ranks` ranks have printed is due at once. 0: the number is unknown.
  explicit LineFolder(int num_ranks = 0) : num_ranks_(num_ranks) {}

  void feed(int rank, std::string_view line, base::MonotonicTime now);
  // What is due by now. Call it after each batch of feed().
  std::vector<OutputLine> flush(base::MonotonicTime now);
  // All remaining lines, at the end of the run.
  std::vector<OutputLine> finish();

 private:
  struct Waiting {
    std::uint64_t number;  // in the order of arrival
    std::string line;
    std::map<int, int> counts;  // by rank
    bool known = false;         // repeats a line that was already shown
    base::MonotonicTime due;
  };
  using Place = std::list<Waiting>::iterator;
  struct RankState {
    std::string last_line;
    bool printed = false;
    bool waits = false;  // last_line is still in waiting_, at `place`
    Place place;
  };

  Place enqueue(std::string_view line, bool known, base::MonotonicTime due);
  // The oldest waiting line that the rank may join without changing the order of its own lines.
  Place joinable(const RankState& state, std::string_view line, bool known, base::MonotonicTime now);
  Place release(Place place, std::vector<OutputLine>& out);
  bool due(const Waiting& waiting, base::MonotonicTime now) const;

  int num_ranks_;
  std::uint64_t next_number_ = 0;
  std::list<Waiting> waiting_;
  std::unordered_multimap<std::string_view, Place> by_line_;  // views into waiting_
  std::unordered_map<int, RankState> ranks_;
  std::vector<OutputLine> early_;  // released early; the next flush() returns them
};

}  // namespace trireme::api
