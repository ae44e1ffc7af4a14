#pragma once

#include <optional>
#include <string>

#include "trireme/checkpoint.h"
#include "trireme/config.h"
#include "trireme/export.h"
#include "trireme/value.h"

// What a training function may call. Outside of one, each of these throws std::runtime_error.

namespace trireme {

struct Context {
  int world_size = 1;
  int world_rank = 0;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  int attempt = 0;  // how many times the gang was started before
  std::string experiment_name;
  std::string run_id;
  std::string path;  // the run's folder; empty in local mode
  std::vector<int> gpus;
  Resources resources;
  Dict metadata;
};

TRIREME_API const Context& context();

struct ReportOptions {
  // Folder of the checkpoint inside the run's; derived from the number of the report when not given.
  std::optional<std::string> checkpoint_dir_name = {};
};

// Never waits for other ranks. With a checkpoint it returns when this rank's files are durable.
// Throws std::runtime_error where the checkpoint cannot be stored.
TRIREME_API void report(const Metrics& metrics, const std::optional<Checkpoint>& checkpoint = std::nullopt,
                        const ReportOptions& options = {});

// The newest one known here: what to resume from, or what this rank has reported since.
TRIREME_API std::optional<Checkpoint> get_checkpoint();

namespace collective {

// Every rank must come.
TRIREME_API void barrier();
// Returns what rank 0 gave; the others' argument is not looked at.
TRIREME_API std::string broadcast_from_rank_zero(const std::string& data);

}  // namespace collective

}  // namespace trireme
