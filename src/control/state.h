#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/commit_book.h"
#include "control/retention.h"
#include "engine/engine.h"
#include "trireme/value.h"

// All that a run is at one instant. Values only: decide() makes the next one from it.

namespace trireme::control {

// docs/run_states.md draws it.
enum class Phase {
  kIdle,        // nothing was asked of the engine yet
  kReserving,   // waiting for room for the gang
  kStarting,    // processes start and say hello
  kRunning,     // the function runs on every rank
  kFailing,     // something broke; a moment is given to learn what broke first
  kDraining,    // a stop was asked for; what is on its way to storage arrives first
  kStopping,    // the gang ends; `next` says what follows
  kValidating,  // the gang is gone; validations of checkpoints still run
  kFinished,
};

enum class WorkerPhase { kAbsent, kStarted, kConnected, kRunning, kDone, kFailed };

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
  std::string cause;  // exception, exit, signal, lost or start
  std::string error_type;
  std::string message;
  std::string traceback;
  std::optional<Bytes> exception;
  std::vector<std::string> log_tail;
  bool collateral = false;  // only follows from another one

  bool operator==(const Failure&) const = default;
};

struct Worker {
  WorkerPhase phase = WorkerPhase::kAbsent;
  int pid = 0;
  std::string host;
  bool process = false;  // the engine says that it runs
  bool channel = false;  // its connection is open
  std::optional<engine::ExitStatus> exit;
  std::string lost;      // why its connection is gone, where it is
  bool drained = false;  // after a stop: nothing of it is on its way to storage

  bool operator==(const Worker&) const = default;
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
  std::vector<engine::Slot> slots;
  std::vector<Worker> workers;
  std::vector<Failure> failures;  // of this attempt, in order of arrival
  std::int64_t failures_used = 0;
  std::int64_t starts_used = 0;
  CommitBook commits;
  int commits_in_flight = 0;         // manifests being written
  std::vector<KeptCheckpoint> kept;  // committed and not removed
  // Validations under way of checkpoints whose name was used again since: their outcome is nobody's any more.
  std::map<std::string, int> outdated_validations;
  bool silence_timed = false;  // Timer::kSilence is armed
  ReturnValue return_value;
  std::int64_t reports = 0;
  std::string stop_why;
  Next next = Next::kNone;
  Outcome outcome = Outcome::kNone;
  std::string error;  // one line; empty unless the outcome is kFailed or kStopped

  bool operator==(const RunState&) const = default;
};

// What decide() goes by; fixed for the whole run.
struct Rules {
  int num_workers = 1;
  CheckpointConfig checkpoints;
  std::int64_t max_failures = 0;
  std::int64_t start_limit = 3;
  double start_timeout_s = 120.0;
  double stop_grace_s = 5.0;
  // How long to wait for the true cause when the first sign is only that a peer is gone.
  double cause_window_s = 0.5;
  // How long checkpoints wait for a rank that has never reported while others are two ahead. Such a rank may only be
  // late: what it brings after that fails the run.
  double silent_rank_s = 10.0;
  // How long other ranks may still say that they failed too.
  double echo_window_s = 0.02;
};

}  // namespace trireme::control
