#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/commit_book.h"
#include "control/report_count.h"
#include "control/retention.h"
#include "engine/engine.h"
#include "trireme/value.h"

// All that a run is at one instant. Values only: decide() makes the next one from it.

namespace trireme::control {

// docs/run_states.md draws it.
enum class Phase {
  kIdle,        // nothing was asked of the engine yet
  kReserving,   // waiting for room for the gang
  kStarting,    // processes start and say hello, and the storage is settled
  kRunning,     // the function runs on every rank
  kFailing,     // something broke; a moment is given to learn what broke first
  kDraining,    // a stop was asked for; what is on its way to storage arrives first
  kStopping,    // workers end, or leave their function for the next attempt; `next` says what follows
  kPausing,     // before the next attempt, as the same thing keeps breaking
  kValidating,  // the gang is gone; validations of checkpoints still run
  kFinished,
};

enum class WorkerPhase {
  kAbsent,
  kStarted,
  kConnected,  // waits to be told what to run
  kRunning,
  kDone,
  kFailed,
  kCancelled,  // asked to leave its function, for the next attempt
  kReady,      // it has: nothing of the attempt is left in its process
};

enum class Outcome { kNone, kFinished, kFailed, kStopped };

enum class Next { kNone, kRestart, kFinish };

const char* to_string(Phase phase);
const char* to_string(WorkerPhase phase);
const char* to_string(Outcome outcome);

// Why a worker did not reach its end.
struct Failure {
  int rank = 0;
  int pid = 0;
  std::string host;
  // exception, exit, signal, out_of_memory, lost, start, hang, deadlock, returned or preemption
  std::string cause;
  std::string error_type;
  std::string message;
  std::string traceback;
  std::optional<Bytes> exception;
  std::vector<std::string> log_tail;
  bool collateral = false;  // only follows from another one

  bool operator==(const Failure&) const = default;
};

// One bundle of one gang: where a process is, whatever rank it has.
struct Seat {
  int gang = 0;
  int bundle = 0;

  auto operator<=>(const Seat&) const = default;
};

// Room that was asked of the engine. The first gang is what the run needs; an elastic run has more, of one seat each.
struct Gang {
  int size = 1;
  bool optional = false;
  bool reserved = false;
  bool leaving = false;  // is given back before the next attempt
  std::vector<engine::Slot> slots = {};

  bool operator==(const Gang&) const = default;
};

struct Worker {
  Seat seat;
  engine::Slot slot;
  WorkerPhase phase = WorkerPhase::kAbsent;
  int pid = 0;
  std::string host;
  bool process = false;  // the engine says that it runs
  bool channel = false;  // its connection is open
  std::optional<engine::ExitStatus> exit;
  std::string out_of_memory;  // what shows that this is why it was killed
  std::string full_log;       // its log file, where no space was left for it when it ended
  std::string lost;           // why its connection is gone, where it is
  std::string holds;          // what is expensive to make again in its process; empty: nothing
  bool drained = false;       // after a stop: nothing of it is on its way to storage

  bool operator==(const Worker&) const = default;
};

// Workers that will be lost soon, as somebody has announced.
struct Preemption {
  std::set<int> ranks;
  std::string why;
  std::int64_t last_report = 0;  // a checkpoint of this report or a later one saves everything

  bool operator==(const Preemption&) const = default;
};

// What the function of rank 0 returned.
struct ReturnValue {
  Value value;
  bool pickled = false;  // Bytes that only Python can read

  bool operator==(const ReturnValue&) const = default;
};

struct RunState {
  Phase phase = Phase::kIdle;
  int first_attempt = 0;  // a resumed run counts on
  int attempt = 0;
  std::map<int, Gang> gangs;
  int next_gang = 0;
  std::vector<Worker> workers;    // by rank
  std::vector<Failure> failures;  // of this attempt, in order of arrival
  std::int64_t failures_used = 0;
  std::int64_t starts_used = 0;
  std::int64_t preemptions_used = 0;
  std::int64_t furthest = 0;  // the highest number of a report that any attempt has made, and one
  std::int64_t began_at = 0;  // what `furthest` was when this attempt began
  int failures_in_row = 0;    // attempts that came no further
  std::string last_error;     // an exception that may come again
  std::int64_t last_error_at = 0;
  std::int64_t same_errors = 0;
  std::optional<std::int64_t> leave_at;  // the attempt ends with the checkpoint of this report: the gang is resized
  std::optional<Preemption> preemption;
  bool last_failure = false;  // whatever the budget says
  bool paused = false;        // long enough
  bool settled = false;       // nothing of an earlier attempt is on its way to or from the storage
  CommitBook commits;
  int commits_in_flight = 0;         // manifests being written
  std::vector<KeptCheckpoint> kept;  // committed and not removed
  // Validations under way of checkpoints whose name was used again since: their outcome is nobody's any more.
  std::map<std::string, int> outdated_validations;
  bool silence_timed = false;  // Timer::kSilence is armed
  ReturnValue return_value;
  ReportCount reports;
  std::string stop_why;
  Next next = Next::kNone;
  Outcome outcome = Outcome::kNone;
  std::string error;  // one line; empty unless the outcome is kFailed or kStopped
  std::string note;   // why there is no further attempt, where that is not for want of budget; part of `error`

  bool operator==(const RunState&) const = default;
};

// What decide() goes by; fixed for the whole run.
struct Rules {
  int num_workers = 1;  // to begin with
  int min_workers = 0;  // 0: as many as above
  int max_workers = 0;
  CheckpointConfig checkpoints;
  std::int64_t max_failures = 0;
  std::int64_t start_limit = 3;
  std::int64_t max_preemptions = -1;
  std::int64_t repeated_error_limit = 0;  // 0: never mind
  double resize_interval_s = 60.0;
  WarmRestart warm_restart = false;
  double cancel_timeout_s = 5.0;
  double backoff_s = 0.0;
  double max_backoff_s = 60.0;
  std::string on_hang = "warn";
  double preemption_grace_s = 20.0;
  double start_timeout_s = 120.0;
  double stop_grace_s = 5.0;
  // How long to wait for the true cause when the first sign is only that a peer is gone.
  double cause_window_s = 0.5;
  // How long checkpoints wait for a rank that has never reported while others are two ahead. Such a rank may only be
  // late: what it brings after that fails the run.
  double silent_rank_s = 10.0;
  // How long other ranks may still say that they failed too.
  double echo_window_s = 0.02;

  int least() const { return min_workers > 0 ? min_workers : num_workers; }
  int most() const { return max_workers > 0 ? max_workers : num_workers; }
  bool elastic() const { return least() < most(); }
};

}  // namespace trireme::control
