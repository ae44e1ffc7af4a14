#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "trireme/config.h"
#include "trireme/value.h"

// Which checkpoints stay. No I/O: decide() asks, the controller's committer removes.

namespace trireme::control {

// A committed checkpoint that is still there.
struct KeptCheckpoint {
  std::int64_t index = 0;
  std::string name;
  Metrics metrics;
  checkpoint::Status status = checkpoint::Status::kCommitted;
  Value validation;  // what a pending one is to be validated with
  int attempt = 0;   // that made it: with the index it tells it from others that have had its name

  bool pending() const { return status == checkpoint::Status::kPendingValidation; }
  bool operator==(const KeptCheckpoint&) const = default;
};

// Worst first, best last, by CheckpointConfig's score; by age where it names none. A missing score and NaN rank below
// every number, whichever order counts as better. Of equals the later one is better.
std::vector<KeptCheckpoint> ranked(std::vector<KeptCheckpoint> kept, const CheckpointConfig& config);

// Those that may go: all but the best num_to_keep. The newest is always spared, because a restart needs it,
// and so is one whose validation has not ended.
std::vector<KeptCheckpoint> surplus(const std::vector<KeptCheckpoint>& kept, const CheckpointConfig& config);

// As Python and workers are told: name, path, index, metrics and status of each.
List to_list(const std::vector<KeptCheckpoint>& kept, const std::string& storage_path);

}  // namespace trireme::control
