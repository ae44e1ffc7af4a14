#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/line_folder.h"
#include "api/log_follower.h"
#include "api/runtime.h"
#include "base/config_fields.h"
#include "base/lock_file.h"
#include "checkpoint/commit.h"
#include "control/controller.h"
#include "control/lease.h"
#include "control/run_registry.h"

namespace trireme::api {

using EnvironmentVariables = std::map<std::string, std::string>;

// One fit(), as both languages describe it; Python passes a dict of these fields.
// clang-format off
#define TRIREME_RUN_SPEC(FIELD)                                                                                        \
  FIELD(std::string, trainer, {}, "name of the trainer's class")                                                       \
  FIELD(ScalingConfig, scaling, {}, "the trainer's")                                                                   \
  FIELD(RunConfig, run, {}, "the trainer's")                                                                           \
  FIELD(Bytes, payload, {}, "what the workers run; see the Start message")                                             \
  FIELD(std::optional<engine::PythonStart>, python, {}, "for workers that are forked from a warm Python process")      \
  FIELD(std::vector<std::string>, argv, {}, "the command of workers that are not forked")                              \
  FIELD(EnvironmentVariables, env, {}, "the whole environment of the workers")                                         \
  FIELD(std::string, cwd, {}, "working directory of the workers")                                                      \
  FIELD(std::vector<std::string>, code, {}, "folders and files with code for nodes that do not see them")              \
  FIELD(std::string, script_folder, {}, "the same, unless it is too large")                                            \
  FIELD(std::optional<std::string>, resume_from_checkpoint, {}, "folder of the checkpoint that the user gave")         \
  FIELD(bool, resume_checkpoint_elsewhere, false, "it is in a file system that only the workers can open")             \
  FIELD(Dict, metadata, {}, "what the user attached to the run")                                                       \
  FIELD(std::string, storage_path, {}, "path in the file system that prepare() is given, if it is given one")          \
  FIELD(bool, owns_loop, false, "the trainer has its own training loop, which follows the CheckpointConfig")           \
  FIELD(bool, share_cuda_visible_devices, false, "each worker sees the GPUs of all workers on its node")                \
  FIELD(std::vector<std::string>, logged_datasets, {}, "names of the datasets whose samples the workers log")          \
  FIELD(bool, every_report, true, "next() returns every report; otherwise only the newest, for the progress line")
// clang-format on
TRIREME_STRUCT(RunSpec, TRIREME_RUN_SPEC)

// A run as its driver sees it. prepare() rejects an invalid run before anything is started; after start() the run
// proceeds by itself and next() returns its events.
class Run {
 public:
  // `files`: the storage, if RunConfig.storage_path alone does not determine it (Python's file systems); shared by the
  // run and its controller.
  static base::Result<std::unique_ptr<Run>> prepare(Runtime& runtime, RunSpec spec,
                                                    std::shared_ptr<storage::Files> files = nullptr);
  ~Run();

  base::Result<void> start();
  // What happened since the last call: events as in the event log, and {"event": "output", "ranks", "line", "repeats"}
  // for what workers printed. Waits for an event for at most `timeout`.
  std::vector<Dict> next(base::Seconds timeout);
  // The run is over and next() has returned everything.
  bool finished();
  // Safe from any thread.
  void stop(std::string why, bool hard);
  // Ranks (all when empty) will be lost in this many seconds (FailureConfig.preemption_grace_s when not given). Workers
  // are notified, so that they can report a last checkpoint. Safe from any thread.
  void announce_preemption(std::vector<int> ranks, std::optional<double> seconds, std::string why);
  // Waits for the end of the run.
  control::RunEnd wait();
  // Ends a run that is still active at once, and deletes its secret. The destructor does the same.
  void close();

  const std::string& name() const { return plan_.name; }
  const std::string& id() const { return plan_.id; }
  const std::string& path() const { return plan_.path; }
  const std::string& storage_path() const { return plan_.storage_path; }
  const std::string& storage_uri() const { return plan_.storage_uri; }
  const storage::Files& files() const { return *plan_.files; }
  // Answers a validation_requested event; safe from any thread.
  void finish_validation(control::ValidationEnded ended);

 private:
  Run(Runtime& runtime, engine::Engine& engine, RunSpec spec, std::shared_ptr<storage::Files> files);

  base::Result<void> plan_gang();
  base::Result<void> plan_folder();
  base::Result<void> plan_code();
  base::Result<void> plan_local_folder(const std::string& storage);
  base::Result<void> plan_remote_folder(const std::string& storage);
  base::Result<void> lock_folder();
  std::string active_driver() const;
  base::Result<void> check_resume(bool there) const;
  base::Result<void> plan_resume();
  base::Result<void> pick_checkpoint(std::vector<checkpoint::Committed> committed);
  base::Result<void> write_run_file() const;
  void remove_half_written() const;
  engine::ProcessSpec make_process(int rank, const engine::Slot& slot, std::string ticket, std::string log_path) const;
  void take(const Dict& event);
  void read_logs(std::vector<Dict>& out, bool last);

  Runtime& runtime_;
  engine::Engine& engine_;
  RunSpec spec_;
  control::RunPlan plan_;
  control::RunRegistry registry_;
  base::LockFile lock_;                    // on the run folder: one driver at a time
  std::unique_ptr<control::Lease> lease_;  // the same for a remote storage
  bool resumed_ = false;
  bool registered_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Dict> events_;  // under the mutex
  // Without every_report: the newest report of rank 0, and the newest of a rank that is ahead of it.
  std::optional<Dict> latest_;
  std::optional<Dict> furthest_;
  control::ReportCount reports_;
  bool over_ = false;  // run_finished was recorded
  bool drained_ = false;

  LogFollower follower_;
  LineFolder folder_;

  std::unique_ptr<control::Controller> controller_;  // last: its thread calls take()
};

// How a run ended, for the table at its end and for Python.
Dict outcome_dict(const control::RunEnd& end, const Run& run);

}  // namespace trireme::api

namespace trireme::base {
TRIREME_STRUCT_FIELDS(api::RunSpec, TRIREME_RUN_SPEC)
}  // namespace trireme::base
