#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "trireme/config.h"
#include "trireme/value.h"

// Decides which checkpoints are kept. No I/O: decide() calls it, and the controller's committer removes the files.

namespace trireme::control {

// A committed checkpoint that still exists.
struct KeptCheckpoint {
  std::int64_t index = 0;
  std::string name;
  Metrics metrics;
  checkpoint::Status status = checkpoint::Status::kCommitted;
  Value validation;  // arguments of the validation, if pending
  int attempt = 0;   // the attempt that created it; with the index it identifies the checkpoint, as names may be reused

  bool pending() const { return status == checkpoint::Status::kPendingValidation; }
  bool operator==(const KeptCheckpoint&) const = default;
};

// Worst first, best last, by the score of CheckpointConfig, or by age if none is configured. A missing score and NaN
// rank below every number, in both orders. Of equal scores the later one is better.
std::vector<KeptCheckpoint> ranked(std::vector<KeptCheckpoint> kept, const CheckpointConfig& config);

// Checkpoints to remove: all but the best num_to_keep. The newest is always kept, because a restart needs it, and so is
// one with a pending validation.
std::vector<KeptCheckpoint> surplus(const std::vector<KeptCheckpoint>& kept, const CheckpointConfig& config);

// For Python and workers: name, path, index, metrics and status of each.
List to_list(const std::vector<KeptCheckpoint>& kept, const std::string& storage_path);

}  // namespace trireme::control
