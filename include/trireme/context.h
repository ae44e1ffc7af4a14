#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint.h"
#include "trireme/config.h"
#include "trireme/export.h"
#include "trireme/value.h"

// Functions for use inside a training function. Outside of one, each of these throws std::runtime_error.

namespace trireme {

struct Context {
  int world_size = 1;
  int world_rank = 0;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  int attempt = 0;  // number of earlier starts of the gang
  std::string experiment_name;
  std::string run_id;
  std::string path;  // the run's folder; empty in local mode
  std::vector<int> gpus;
  Resources resources;
  Dict metadata;
};

TRIREME_API const Context& context();

// When report() returns. Python has the same modes under the second names.
#define TRIREME_CHECKPOINT_UPLOAD_MODES(MODE)                                             \
  /* When this rank's files are durable. */                                               \
  MODE(kSync, "SYNC")                                                                     \
  /* When a state is copied; at once for a folder, which must not change until stored. */ \
  MODE(kAsync, "ASYNC")                                                                   \
  /* At once: the checkpoint is already in the run folder. */                             \
  MODE(kNoUpload, "NO_UPLOAD")
#define TRIREME_UPLOAD_MODE(mode, name) mode,
enum class CheckpointUploadMode { TRIREME_CHECKPOINT_UPLOAD_MODES(TRIREME_UPLOAD_MODE) };
#undef TRIREME_UPLOAD_MODE

struct ReportOptions {
  // Name of the checkpoint in the run folder. Default: derived from the number of the report.
  std::optional<std::string> checkpoint_dir_name = {};
  CheckpointUploadMode checkpoint_upload_mode = CheckpointUploadMode::kSync;
  // Delete the checkpoint's source folder once it is stored. Default: true for kAsync, false otherwise.
  std::optional<bool> delete_local_checkpoint_after_upload = {};
};

// Never waits for other ranks. Throws std::runtime_error if the checkpoint cannot be stored; with kAsync, the run fails
// with that error instead.
TRIREME_API void report(const Metrics& metrics, const std::optional<Checkpoint>& checkpoint = std::nullopt,
                        const ReportOptions& options = {});

// The newest checkpoint known to this rank: the one to resume from, or the last one that this rank reported.
TRIREME_API std::optional<Checkpoint> get_checkpoint();

struct ReportedCheckpoint {
  Checkpoint checkpoint;
  Metrics metrics;
  std::string status;  // COMMITTED, PENDING_VALIDATION, VALIDATED, VALIDATION_TIMEOUT or VALIDATION_FAILED
};
// The retained checkpoints of the run, worst first. Waits until every checkpoint reported by this rank is committed;
// after the timeout, returns those known so far.
TRIREME_API std::vector<ReportedCheckpoint> get_all_reported_checkpoints(std::optional<double> timeout_s = {});

// Workers that will be lost, as announced by a scheduler, the engine or `trireme preempt`. A checkpoint reported before
// the deadline is committed even if the lost ranks never report their parts.
struct PreemptionInfo {
  double deadline = 0;  // seconds since 1970
  std::map<std::string, std::vector<int>> ranks_by_host;
  std::string why;
};
// Returns rank 0's view on every rank, so that all ranks act the same way. A collective: every rank must call it.
TRIREME_API std::optional<PreemptionInfo> get_preemption_info();

// Thrown by the functions in this header when the gang restarts or is resized: the function must return, and is then
// called again in the same process. Not a std::exception, so that error handlers do not catch it; code that catches
// everything must rethrow it.
struct Interrupted {};
// For long computations that call no other function of this header. Throws Interrupted if the function must return.
TRIREME_API void check_interrupted();

namespace collective {

// A collective: every rank must call it.
TRIREME_API void barrier();
// A collective: returns rank 0's argument on every rank; the arguments of other ranks are ignored.
TRIREME_API std::string broadcast_from_rank_zero(const std::string& data);

}  // namespace collective

}  // namespace trireme
