#pragma once

#include <string>
#include <variant>
#include <vector>

#include "control/state.h"

// What can happen to a run. The controller makes these from messages, the engine's events and timers.

namespace trireme::control {

enum class Timer {
  kStart,    // the gang has not come up in time
  kCause,    // enough waiting for a better cause
  kStop,     // the gang has not ended in time
  kSilence,  // checkpoints have waited long enough for ranks that never report
};

struct Begin {};
struct GangReserved {
  std::vector<engine::Slot> slots;
};
struct ReservationFailed {
  std::string message;
};
struct ProcessStarted {
  int rank;
  int pid;
  bool forked;
};
struct ProcessStartFailed {
  int rank;
  std::string message;
};
struct ProcessExited {
  int rank;
  engine::ExitStatus status;
};
struct Connected {
  int rank;
  int pid;
  std::string host;
};
// The connection is gone, or the peer is silent.
struct ConnectionLost {
  int rank;
  std::string why;
};
struct FunctionEntered {
  int rank;
};
struct Reported {
  int rank;
  std::int64_t index;
  Metrics metrics;
  std::optional<std::string> checkpoint;
  Value validation = {};
};
struct Uploaded {
  int rank;
  std::int64_t index;
  std::optional<std::string> failure;
  List files = {};
};
// The manifest is durable, or it could not be written.
struct CommitEnded {
  ReadyCheckpoint checkpoint;
  std::vector<std::string> conflicts;  // files that ranks wrote differently
  std::optional<std::string> failure;
};
struct ValidationEnded {
  std::string name;
  checkpoint::Status status;
  Metrics metrics;
  std::string message;
};
// The rank has nothing more on its way to storage.
struct UploadsDrained {
  int rank;
};
struct FunctionReturned {
  int rank;
  ReturnValue value;
};
struct FunctionFailed {
  int rank;
  std::string error_type;
  std::string message;
  std::string traceback;
  std::optional<Bytes> exception;
};
struct StopRequested {
  std::string why;
  bool hard = false;
};
struct TimerFired {
  Timer timer;
};

using Event = std::variant<Begin, GangReserved, ReservationFailed, ProcessStarted, ProcessStartFailed, ProcessExited,
                           Connected, ConnectionLost, FunctionEntered, Reported, Uploaded, CommitEnded, ValidationEnded,
                           UploadsDrained, FunctionReturned, FunctionFailed, StopRequested, TimerFired>;

}  // namespace trireme::control
