#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

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

enum class CheckpointUploadMode {
  kSync,      // report() returns when this rank's files are durable
  kAsync,     // it returns when a state is copied, or at once for a folder, which must stay until it is stored
  kNoUpload,  // the folder lies in the run's folder already
};

struct ReportOptions {
  // Folder of the checkpoint inside the run's; derived from the number of the report when not given.
  std::optional<std::string> checkpoint_dir_name = {};
  CheckpointUploadMode checkpoint_upload_mode = CheckpointUploadMode::kSync;
  // The checkpoint's own folder goes when it is stored. True for kAsync, false otherwise, when not given.
  std::optional<bool> delete_local_checkpoint_after_upload = {};
};

// Never waits for other ranks. Throws std::runtime_error where the checkpoint cannot be stored; with kAsync that fails
// the run, with its cause.
TRIREME_API void report(const Metrics& metrics, const std::optional<Checkpoint>& checkpoint = std::nullopt,
                        const ReportOptions& options = {});

// The newest one known here: what to resume from, or what this rank has reported since.
TRIREME_API std::optional<Checkpoint> get_checkpoint();

struct ReportedCheckpoint {
  Checkpoint checkpoint;
  Metrics metrics;
  std::string status;  // COMMITTED, PENDING_VALIDATION, VALIDATED, VALIDATION_TIMEOUT or VALIDATION_FAILED
};
// What the run retains, worst first, once every checkpoint that this rank has reported is committed; after the timeout:
// what is known.
TRIREME_API std::vector<ReportedCheckpoint> get_all_reported_checkpoints(std::optional<double> timeout_s = {});

// Workers that will be lost, as a scheduler, an engine or `trireme preempt` has announced. A checkpoint that is
// reported until then is committed also without the parts of those who never come to report it.
struct PreemptionInfo {
  double deadline = 0;  // seconds since 1970
  std::map<std::string, std::vector<int>> ranks_by_host;
  std::string why;
};
// What rank 0 knows, on every rank, so that all do the same: every rank must call it.
TRIREME_API std::optional<PreemptionInfo> get_preemption_info();

// Thrown by the calls of this header when the gang is started again or resized: the function is to be left, and will be
// called again in the same process. No std::exception, so that it passes by those who handle errors; whoever catches
// everything must throw it on.
struct Interrupted {};
// For long computations that call nothing of this header: throws Interrupted where the function is to be left.
TRIREME_API void check_interrupted();

namespace collective {

// Every rank must come.
TRIREME_API void barrier();
// Returns what rank 0 gave; the others' argument is not looked at.
TRIREME_API std::string broadcast_from_rank_zero(const std::string& data);

}  // namespace collective

}  // namespace trireme
