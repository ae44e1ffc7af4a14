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

// The start message of a worker has the same fields, from this table (src/wire/message.h).
// clang-format off
#define TRIREME_CONTEXT(FIELD)                                                                                         \
  FIELD(int, world_size, 1, "number of workers")                                                                       \
  FIELD(int, world_rank, 0, "rank of this worker")                                                                     \
  FIELD(int, local_rank, 0, "number of this worker on its node")                                                       \
  FIELD(int, local_world_size, 1, "number of workers on this node")                                                    \
  FIELD(int, node_rank, 0, "number of this node")                                                                      \
  FIELD(int, num_nodes, 1, "number of nodes")                                                                          \
  FIELD(int, attempt, 0, "number of the attempt, from 0")                                                              \
  FIELD(std::string, experiment_name, {}, "name of the run")                                                           \
  FIELD(std::string, run_id, {}, "unique id of the run")                                                               \
  FIELD(std::string, path, {}, "folder of the run on the driver's machine: logs, event log; empty in local mode")      \
  FIELD(std::vector<std::string>, gpus, {}, "ids of this worker's devices, as in CUDA_VISIBLE_DEVICES")                \
  FIELD(std::vector<std::string>, visible_gpus, {}, "ids of the devices that this process sees: device i is the i-th") \
  FIELD(bool, whole_gpus, false, "its devices are whole GPUs, at least one: no fraction and no MIG device")            \
  FIELD(Resources, resources, {}, "resources of this worker")                                                          \
  FIELD(Dict, metadata, {}, "the trainer's metadata argument")
// clang-format on

struct Context {
  TRIREME_CONTEXT(TRIREME_CONFIG_MEMBER)
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
