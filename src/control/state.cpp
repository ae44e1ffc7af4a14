#include "control/state.h"

namespace trireme::control {

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::kIdle: return "idle";
    case Phase::kReserving: return "reserving";
    case Phase::kStarting: return "starting";
    case Phase::kRunning: return "running";
    case Phase::kFailing: return "failing";
    case Phase::kDraining: return "draining";
    case Phase::kStopping: return "stopping";
    case Phase::kPausing: return "pausing";
    case Phase::kValidating: return "validating";
    case Phase::kFinished: return "finished";
  }
  return "?";
}

const char* to_string(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kAbsent: return "absent";
    case WorkerPhase::kStarted: return "started";
    case WorkerPhase::kConnected: return "connected";
    case WorkerPhase::kRunning: return "running";
    case WorkerPhase::kDone: return "done";
    case WorkerPhase::kFailed: return "failed";
    case WorkerPhase::kCancelled: return "cancelled";
    case WorkerPhase::kReady: return "ready";
  }
  return "?";
}

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNone: return "none";
    case Outcome::kFinished: return "finished";
    case Outcome::kFailed: return "failed";
    case Outcome::kStopped: return "stopped";
  }
  return "?";
}

}  // namespace trireme::control
