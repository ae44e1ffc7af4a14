#pragma once

#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/digest_records.h"
#include "data/digest_verify.h"

namespace trireme::data {

// The history of a dataset, attempt by attempt, for all ranks together or for one rank that reads all rows.
class DigestHistory {
 public:
  using Ranks = std::map<int, RankLog>;

  DigestHistory(std::string name, const DatasetLog& log, const RunFacts& facts)
      : name_(std::move(name)), log_(log), facts_(facts) {}

  // `alone`: a rank that reads all rows. Positions are those of the lowest rank: a rank that did not take part before,
  // or consumes nothing, may have any position.
  void add_attempt(int attempt, const Ranks& ranks, bool alone = false);
  // For a rank that returns after attempts without it: its earlier lines are a separate history.
  void break_off(std::vector<EpochVerdict>& verdicts);
  void tell(std::vector<EpochVerdict>& verdicts);

 private:
  // One pass of an attempt, over all ranks.
  struct Segment {
    int attempt = 0;
    PassStart start;     // with the layout's fragment_rows
    Span rows;           // of the epoch, consumed by all ranks
    bool ended = false;  // on every rank
    bool over = false;   // after its last step, on every rank
    std::string open;    // the rank that has not ended it, or ended it at a different row

    std::int64_t epoch() const { return start.epoch; }
    std::pair<std::int64_t, std::int64_t> place() const { return {start.epoch, rows.begin}; }
    std::int64_t size() const {
      return std::accumulate(start.layout.fragment_rows.begin(), start.layout.fragment_rows.end(), std::int64_t{0});
    }
  };

  // The first problem explains the others.
  void add_problem(std::int64_t epoch, std::string problem) { problems_.try_emplace(epoch, std::move(problem)); }
  // A pass with nothing left to do, at a position that earlier attempts must have reached.
  void add_idle_attempt(int attempt, const Ranks& ranks);
  // Nothing if some ranks did not reach this pass.
  std::optional<Segment> check_together(int attempt, const Ranks& ranks, const std::vector<int>& expected,
                                        std::size_t number);
  // The end of each rank's lines.
  std::vector<std::int64_t> check_members(const std::vector<const LoggedPass*>& members, const Segment& segment);
  void append(Segment segment, bool first_of_attempt);
  // Whether a segment follows from those before it. Removes what it repeats.
  void check_join(const Segment& next, bool first_of_attempt);
  // Removes rows that an attempt consumed after the position at which a later attempt starts.
  void drop_repeated(const Segment& next);
  void check_beginning(const Segment& segment);
  void check_continuity(const Segment& next);
  // Before the next epoch starts, or the run ends.
  void require_ended(const Segment& segment);
  // For the segments of the last segment's epoch.
  void check_same_order();
  // The number of samples that occur more than once in the segments of an epoch.
  static std::optional<std::int64_t> repeated_rows(const std::vector<Segment>& segments);

  std::string name_;
  const DatasetLog& log_;
  const RunFacts& facts_;
  std::vector<Segment> segments_;                 // without rows that were repeated
  std::map<std::int64_t, std::string> problems_;  // by epoch, also for rows that were repeated
  bool finished_ = false;                         // the last attempt, on all ranks
  bool anywhere_ = false;                         // the current attempt may start at any position
};

}  // namespace trireme::data
