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
#include "base/lock_file.h"
#include "checkpoint/commit.h"
#include "control/controller.h"
#include "control/lease.h"
#include "control/run_registry.h"

namespace trireme::api {

// One fit(), as both languages describe it.
struct RunSpec {
  std::string trainer;
  ScalingConfig scaling;
  RunConfig run;
  Bytes payload;
  std::optional<engine::PythonStart> python;
  std::vector<std::string> argv;  // what to execute where nothing can be forked
  std::map<std::string, std::string> env;
  std::string cwd;
  std::optional<std::string> resume_from_checkpoint;
  bool resume_checkpoint_elsewhere = false;  // it lies in a file system that only the workers know
  Dict metadata;
  // The storage, where RunConfig.storage_path alone does not tell (Python's file systems): the path is one in it.
  std::shared_ptr<storage::Files> files;  // shared by the run and its controller
  std::string storage_path;
  // Whether next() gives every report; otherwise the newest, for the progress line.
  bool every_report = true;
};

// A run and what its driver sees of it. prepare() refuses what cannot work before anything is started; after start()
// the run goes on by itself and next() tells about it.
class Run {
 public:
  static base::Result<std::unique_ptr<Run>> prepare(Runtime& runtime, RunSpec spec);
  ~Run();

  base::Result<void> start();
  // What happened since the last call: events as in the event log, and {"event": "output", "ranks", "line", "repeats"}
  // for what workers printed. Waits for something to tell, at most `timeout`.
  std::vector<Dict> next(base::Seconds timeout);
  // The run is over and next() has told everything.
  bool finished();
  // Safe from any thread.
  void stop(std::string why, bool hard);
  // Ranks (all when empty) will be lost in so many seconds (FailureConfig.preemption_grace_s when not given): workers
  // are told, so that they can report a last checkpoint. Safe from any thread.
  void announce_preemption(std::vector<int> ranks, std::optional<double> seconds, std::string why);
  // Waits for the end where it has not come yet.
  control::RunEnd wait();
  // Ends what still runs, at once, and forgets the secret. The destructor does the same.
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
  Run(Runtime& runtime, engine::Engine& engine, RunSpec spec);

  base::Result<void> plan_gang();
  base::Result<void> plan_folder();
  base::Result<void> plan_local_folder(const std::string& storage);
  base::Result<void> plan_remote_folder(const std::string& storage);
  base::Result<void> lock_folder();
  base::Result<void> check_resume(bool there) const;
  base::Result<void> plan_resume();
  base::Result<void> pick_checkpoint(std::vector<checkpoint::Committed> committed);
  base::Result<void> write_run_file() const;
  engine::ProcessSpec make_process(int rank, const engine::Slot& slot, std::string ticket, std::string log_path) const;
  void take(const Dict& event);
  void read_logs(std::vector<Dict>& out, bool last);

  Runtime& runtime_;
  engine::Engine& engine_;
  RunSpec spec_;
  control::RunPlan plan_;
  control::RunRegistry registry_;
  base::LockFile lock_;                    // on the run folder: one driver at a time
  std::unique_ptr<control::Lease> lease_;  // the same for a storage elsewhere
  bool resumed_ = false;
  bool registered_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Dict> events_;  // under the mutex
  // Where not every report is wanted: the newest of rank 0, and the newest of a rank that is ahead of it.
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
