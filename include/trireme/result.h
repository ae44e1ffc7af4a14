#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint.h"
#include "trireme/export.h"
#include "trireme/value.h"

namespace trireme {

// Why a worker did not reach its end.
struct WorkerFailure {
  int rank = 0;
  int pid = 0;
  std::string host;
  std::string cause;  // exception, exit, signal, lost or start
  std::string error_type;
  std::string message;
  std::string traceback;
  std::vector<std::string> log_tail;
  bool collateral = false;  // only follows from another one
};

// What fit() throws where the run did not finish. The first failure explains the others.
class TRIREME_API TrainingFailedError : public std::runtime_error {
 public:
  TrainingFailedError(const std::string& what, std::vector<WorkerFailure> failures)
      : std::runtime_error(what), failures_(std::move(failures)) {}
  const std::vector<WorkerFailure>& worker_failures() const { return failures_; }

 private:
  std::vector<WorkerFailure> failures_;
};

// What a run has left.
struct TRIREME_API Result {
  std::optional<Metrics> metrics;        // rank 0's last report, over it its checkpoint's validation
  std::optional<Checkpoint> checkpoint;  // the newest
  std::vector<std::pair<Checkpoint, Metrics>> best_checkpoints;  // those that were kept, worst first
  Value return_value;                                            // of rank 0
  std::string path;                                              // the run's folder; empty in local mode
  double seconds = 0;
  int attempts = 0;
  std::int64_t reports = 0;  // of the furthest rank, over all starts of the run, without repeats
  std::optional<std::string> error;

  // Rank 0's reports, one by one, without those that a restart has repeated.
  std::vector<Metrics> metrics_history() const;
  // The same of every rank: {"rank", "index", "attempt", "time", "metrics"}, in the order of index and rank.
  std::vector<Dict> metrics_of_all_ranks() const;
  // By a metric ("a/b" reaches into nested ones) and "max" or "min". Throws where no checkpoint has it.
  Checkpoint get_best_checkpoint(const std::string& metric, const std::string& mode) const;

  // Of any run folder, also of a run that failed or still goes on, also as a URI. Throws where there is none.
  static Result from_path(const std::string& path);
};

}  // namespace trireme
