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

// Why a worker failed.
struct WorkerFailure {
  int rank = 0;
  int pid = 0;
  std::string host;
  std::string cause;  // see docs/run_states.md
  std::string error_type;
  std::string message;
  std::string traceback;
  std::vector<std::string> log_tail;
  bool collateral = false;  // a consequence of another failure
};

// Thrown by fit() if the run did not finish. The first failure is the cause of the others.
class TRIREME_API TrainingFailedError : public std::runtime_error {
 public:
  TrainingFailedError(const std::string& what, std::vector<WorkerFailure> failures)
      : std::runtime_error(what), failures_(std::move(failures)) {}
  const std::vector<WorkerFailure>& worker_failures() const { return failures_; }

 private:
  std::vector<WorkerFailure> failures_;
};

// The outcome of a run.
struct TRIREME_API Result {
  std::optional<Metrics> metrics;                                // rank 0's last report, with its validation metrics
  std::optional<Checkpoint> checkpoint;                          // the newest
  std::vector<std::pair<Checkpoint, Metrics>> best_checkpoints;  // the retained ones, worst first
  Value return_value;                                            // of rank 0
  std::string path;                                              // the run's folder; empty in local mode
  double seconds = 0;
  int attempts = 0;
  std::int64_t reports = 0;  // of the most advanced rank, over all attempts, without repeats
  std::optional<std::string> error;

  // Rank 0's reports in order, without those that a restart repeated.
  std::vector<Metrics> metrics_history() const;
  // The reports of every rank: {"rank", "index", "attempt", "time", "metrics"}, ordered by index and rank.
  std::vector<Dict> metrics_of_all_ranks() const;
  // The best by a metric ("a/b" selects a nested one) and "max" or "min". Throws if no checkpoint has the metric.
  Checkpoint get_best_checkpoint(const std::string& metric, const std::string& mode) const;

  // Reads a run folder (a path or a URI). The run may have failed or may still be active. Throws if there is no run.
  static Result from_path(const std::string& path);
};

}  // namespace trireme
