#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/commit_book.h"
#include "control/position_check.h"
#include "control/report_count.h"
#include "control/retention.h"
#include "engine/engine.h"
#include "trireme/value.h"

// The complete state of a run. Values only: decide() creates the next state from it.

namespace trireme::control {

// See the diagram in docs/run_states.md.
enum class Phase {
  kIdle,        // nothing was requested from the engine yet
  kReserving,   // waiting for room for the gang
  kStarting,    // processes start and connect, and the storage is settled
  kRunning,     // the function runs on every rank
  kFailing,     // something failed; waits briefly for the root cause
  kDraining,    // a stop was requested; uploads in flight finish first
  kStopping,    // workers end, or leave their function for the next attempt; see `next`
  kPausing,     // before the next attempt, because the same failure repeats
  kValidating,  // the gang has ended; validations of checkpoints still run
  kFinished,
};

enum class WorkerPhase {
  kAbsent,
  kStarted,
  kConnected,  // waits for the function
  kRunning,
  kDone,
  kFailed,
  kCancelled,  // asked to leave its function, for the next attempt
  kReady,      // has left it: its process is ready for the next attempt
};

enum class Outcome { kNone, kFinished, kFailed, kStopped };

enum class Next { kNone, kRestart, kFinish };

const char* to_string(Phase phase);
const char* to_string(WorkerPhase phase);
const char* to_string(Outcome outcome);

// Why a worker failed.
struct Failure {
  int rank = 0;
  int pid = 0;
  std::string host;
  // exception, exit, signal, out_of_memory, watchdog, lost, node_lost, start, hang, deadlock, returned or preemption
  std::string cause;
  std::string error_type;
  std::string message;
  std::string traceback;
  std::optional<Bytes> exception;
  std::vector<std::string> log_tail;
  bool collateral = false;  // only a consequence of another failure

  bool operator==(const Failure&) const = default;
};

// One bundle of one gang: identifies a process independently of its rank.
struct Seat {
  int gang = 0;
  int bundle = 0;

  auto operator<=>(const Seat&) const = default;
};

// Room requested from the engine. The first gang is the run's minimum; an elastic run has more gangs, of one seat each.
struct Gang {
  int size = 1;
  bool optional = false;
  bool reserved = false;
  bool leaving = false;  // is released before the next attempt
  bool lost = false;     // a node of it is lost, or will be taken away: the next attempt needs other room
  std::vector<engine::Slot> slots = {};

  bool operator==(const Gang&) const = default;
};

struct Worker {
  Seat seat;
  engine::Slot slot;
  WorkerPhase phase = WorkerPhase::kAbsent;
  int pid = 0;
  std::string host;
  bool process = false;  // the engine has started it, or is starting it
  bool channel = false;  // its connection is open
  std::optional<engine::ExitStatus> exit;
  std::string out_of_memory;  // evidence that it was killed for lack of memory
  std::string full_log;       // path of its log file if no space was left when it ended
  // What it printed if NCCL's watchdog ended it because of another rank: watchdog_line(), and where the flight recorder
  // is. Empty: it did not.
  std::string watchdog;
  std::string lost;                       // why its connection was closed
  std::string node_lost;                  // why its node counts as lost; empty: the process has ended by itself
  std::string holds;                      // what is expensive to recreate in its process; empty: nothing
  std::vector<std::string> visible_gpus;  // ids of the GPUs that its process sees, fixed when it starts
  bool drained = false;                   // after a stop: has no upload in flight
  bool aborted = false;                   // cancelled, and its collectives have ended

  bool operator==(const Worker&) const = default;
};

// The stacks of all ranks at one moment.
struct GangStacks {
  std::vector<std::string> where;  // by rank: worker::Stacks::where; empty: no answer
  std::string summary;             // see HangReport
  std::string path;

  bool operator==(const GangStacks&) const = default;
};

// Workers that will be lost soon, as announced.
struct Preemption {
  std::set<int> ranks;
  std::string why;
  std::int64_t last_report = 0;  // a checkpoint of this report or a later one saves all progress
  bool elsewhere = false;        // the run may continue on other nodes, by the last announcement that knew it
  bool driver_ends = false;      // so it may not
  bool estimated = false;        // the deadline is the default grace period

  bool operator==(const Preemption&) const = default;
};

// The return value of the function on rank 0.
struct ReturnValue {
  Value value;
  bool pickled = false;  // Bytes that only Python can read

  bool operator==(const ReturnValue&) const = default;
};

struct RunState {
  Phase phase = Phase::kIdle;
  int first_attempt = 0;  // a resumed run continues counting
  int attempt = 0;
  std::map<int, Gang> gangs;
  int next_gang = 0;
  std::vector<Worker> workers;    // by rank
  std::set<int> doomed;           // ranks to kill as soon as no cancelled worker is in a collective with them
  std::size_t laggard = 0;        // the rank for which the gang was last found to wait; see Decider::all_workers
  std::vector<Failure> failures;  // of this attempt, in order of arrival
  std::int64_t failures_used = 0;
  std::int64_t starts_used = 0;
  std::int64_t preemptions_used = 0;
  std::int64_t furthest = 0;  // the highest report index of any attempt, plus one
  std::int64_t began_at = 0;  // what `furthest` was when this attempt began
  int failures_in_row = 0;    // attempts without progress
  std::string last_error;     // an exception that may repeat
  std::int64_t last_error_at = 0;
  std::int64_t same_errors = 0;
  std::optional<std::int64_t> leave_at;  // the attempt ends with the checkpoint of this report: the gang is resized
  std::optional<Preemption> preemption;
  std::optional<GangStacks> stacks;  // of this attempt, the newest
  std::string node_lost;             // in this attempt, as last recorded
  bool last_failure = false;         // regardless of the budget
  bool paused = false;               // the pause is over
  bool settled = false;              // no operation of an earlier attempt on the storage is in progress
  CommitBook commits;
  PositionCheck positions;            // of this attempt
  bool told_of_positions = false;     // that they differ
  int commits_in_flight = 0;          // manifests being written
  std::set<std::int64_t> collecting;  // reports of checkpoints that are committed in memory but not stored yet
  bool told_of_single_copy = false;
  std::vector<KeptCheckpoint> kept;  // committed and not removed
  // Validations in progress of checkpoints whose name has been reused: their results are ignored.
  std::map<std::string, int> outdated_validations;
  bool silence_timed = false;  // Timer::kSilence is armed
  ReturnValue return_value;
  ReportCount reports;
  std::string stop_why;
  Next next = Next::kNone;
  Outcome outcome = Outcome::kNone;
  std::string error;  // one line; empty unless the outcome is kFailed or kStopped
  std::string note;   // why there is no further attempt, if the budget is not the reason; part of `error`

  bool operator==(const RunState&) const = default;
};

// The configuration of decide(); constant for the run.
struct Rules {
  int num_workers = 1;  // at the start
  int min_workers = 0;  // 0: same as num_workers
  int max_workers = 0;
  CheckpointConfig checkpoints;
  std::int64_t max_failures = 0;
  std::int64_t start_limit = 3;
  std::int64_t max_preemptions = -1;
  std::int64_t repeated_error_limit = 0;  // 0: disabled
  bool share_cuda_visible_devices = false;
  bool agents_end_with_gang = false;  // and with them the checkpoints in their memory
  double resize_interval_s = 60.0;
  WarmRestart warm_restart = false;
  double cancel_timeout_s = 5.0;
  double backoff_s = 0.0;
  double max_backoff_s = 60.0;
  std::string on_hang = "warn";
  double preemption_grace_s = 20.0;
  double start_timeout_s = 120.0;
  double stop_grace_s = 5.0;
  // How long to wait for the root cause if the first sign is only a lost peer.
  double cause_window_s = 0.5;
  // How long checkpoints wait for a rank that has never reported while others are two ahead. The rank may only be late;
  // its part then fails the run.
  double silent_rank_s = 10.0;
  // How long to wait for failures of other ranks.
  double echo_window_s = 0.02;

  int least() const { return min_workers > 0 ? min_workers : num_workers; }
  int most() const { return max_workers > 0 ? max_workers : num_workers; }
  bool elastic() const { return least() < most(); }
};

}  // namespace trireme::control
