#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/value.h"

namespace trireme::control {

// A checkpoint with the parts of every rank: its files are durable, and the manifest may be written.
struct ReadyCheckpoint {
  std::int64_t index = 0;
  std::string name;
  Metrics metrics;
  Value validation;  // null: not requested
  Dict positions;    // positions in the data by dataset name, from the lowest rank that has any, which represents all
                     // ranks
  std::map<int, List> files;  // files stored by each rank, as reported
  std::vector<int> missing;   // ranks that have never reported and are left out
  // Ranks whose files are in the memory of nodes, and of how many. The storage has the files of the others.
  std::map<int, int> nodes;

  // Whether all files are in memory, so that the checkpoint may be committed before the storage has them.
  bool in_memory() const;

  bool operator==(const ReadyCheckpoint&) const = default;
};

// The content of one report of a rank.
struct RankReport {
  Metrics metrics;
  std::optional<std::string> checkpoint = {};
  Value validation = {};
  Dict positions = {};  // null: the rank has not restored the position that it was started with
};

// Determines when report i may be committed: every rank has reported i or finished, and all uploads announced for it
// are done. A rank that has never reported does not block the others forever: once another rank is two checkpoints
// ahead and some time has passed (measured by the caller: this class has no clock), commits continue without it.
//
// A rank that has reported is never left out: a checkpoint without its report would lack its files, and the position
// would skip the rows that it has not read. If such a rank is lost, preempted or not, the checkpoints that it has not
// reported never become ready.
//
// The cost per report does not depend on the number of ranks; only the first checkpoint report of an index checks all
// of them.
class CommitBook {
 public:
  CommitBook() = default;
  // `positions`: those of the checkpoint that the ranks start from.
  CommitBook(int num_ranks, std::int64_t first_report, Dict positions = {});

  // The book of the next attempt: continues counting from the newest checkpoint and keeps the last metrics.
  CommitBook next_attempt(int num_ranks) const;
  // The book of this attempt, before it begins, if it resumes from an earlier checkpoint than the newest one.
  CommitBook resumed_earlier(std::int64_t first_report, Dict positions) const;

  void report(int rank, std::int64_t index, const RankReport& report);
  // `nodes`: that hold the files in memory; 0: they are in the storage.
  void uploaded(int rank, std::int64_t index, List files, int nodes = 0);
  void finished(int rank);

  // Whether two or more checkpoints wait, and some rank has never reported.
  bool held_up_by_silent_ranks() const;
  // Until one of them reports.
  void give_up_on_silent_ranks();
  // Names of the checkpoints that wait for the rank's report, or for its files.
  std::vector<std::string> waiting_for(int rank) const;

  // Whether report `index` was already taken: a shard for it is too late.
  bool taken(std::int64_t index) const { return index < taken_ && !pending_.contains(index); }

  // Checkpoints that became ready since the last call, ordered by index.
  std::vector<ReadyCheckpoint> take_ready();
  // The manifest of the taken report `index` is durable.
  void committed(std::int64_t index, Dict positions);
  // Whether a checkpoint of a report below `index` waits for ranks or uploads.
  bool waits_below(std::int64_t index) const { return !pending_.empty() && pending_.begin()->first < index; }

  std::int64_t next_report(int rank) const { return next_[static_cast<std::size_t>(rank)]; }
  // The next report after the newest committed checkpoint: a restarted gang continues counting there.
  std::int64_t resume_at() const { return resume_at_; }
  // Positions of the checkpoint that this attempt starts from.
  const Dict& first_positions() const { return first_positions_; }
  // The highest number that any rank will report next.
  std::int64_t next_report() const;
  // Rank 0's last report, updated with the result of the validation of its checkpoint.
  const std::optional<Metrics>& last_metrics() const { return last_metrics_; }
  void validated(std::int64_t index, const Metrics& found);
  // From an earlier start of the run.
  void set_last_metrics(Metrics metrics) { last_metrics_ = std::move(metrics); }
  // Indexes that wait, with the ranks they wait for; for the warning about a stall.
  std::map<std::int64_t, std::vector<int>> waiting() const;

  bool operator==(const CommitBook&) const = default;

 private:
  struct Pending {
    std::string name;
    int arrived = 0;          // ranks that have reported it or finished
    std::set<int> uploading;  // ranks whose part is announced but not stored
    int metrics_rank = 0;
    Metrics metrics;
    int validation_rank = std::numeric_limits<int>::max();
    Value validation;
    int positions_rank = std::numeric_limits<int>::max();
    bool positions_taken_up = false;  // whether that rank has restored any position
    Dict positions;
    // By name: the lowest rank that has restored it, and its position.
    std::map<std::string, std::pair<int, Value>> taken_up;
    std::map<int, List> files;
    std::map<int, int> nodes;
    bool operator==(const Pending&) const = default;
  };

  bool counts_as_arrived(int rank, std::int64_t index) const;
  void wake_up(int rank, std::int64_t index);
  static void add_positions(Pending& pending, int rank, const Dict& positions);
  Dict positions_of(const Pending& pending) const;

  std::vector<std::int64_t> next_;
  std::vector<bool> finished_;
  std::vector<bool> silent_;  // has never reported, and is not waited for
  std::vector<bool> reported_;
  int unheard_ = 0;  // ranks that have neither reported nor finished nor been given up on
  std::int64_t taken_ = 0;
  std::int64_t resume_at_ = 0;
  Dict first_positions_;
  Dict resume_positions_;  // of the newest committed checkpoint
  std::map<std::int64_t, Pending> pending_;
  std::optional<Metrics> last_metrics_;
  std::int64_t last_metrics_index_ = -1;
};

}  // namespace trireme::control
