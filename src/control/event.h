#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "control/state.h"

// What can happen to a run. The controller makes these from messages, the engine's events and timers.

namespace trireme::control {

enum class Timer {
  kStart,    // the gang has not come up in time
  kCause,    // enough waiting for a better cause
  kStop,     // the gang has not ended in time, or has not left the function
  kSilence,  // checkpoints have waited long enough for ranks that never report
  kPause,    // now the next attempt may begin
  kResize,   // time to look for more room
  kPreempt,  // those who were announced to go are gone now
};

struct Begin {};
struct GangReserved {
  std::vector<engine::Slot> slots;
  int gang = 0;
};
struct ReservationFailed {
  std::string message;
  int gang = 0;
};
// The engine wants its room back.
struct GangReclaimed {
  int gang;
  std::string why;
  std::optional<double> seconds;
};
struct RoomGrew {};
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
  std::string out_of_memory = {};
  std::string full_log = {};  // its log file, where no space is left for it
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
  std::string holds = {};  // see Worker
};
struct Reported {
  int rank;
  std::int64_t index;
  Metrics metrics;
  std::optional<std::string> checkpoint;
  Value validation = {};
  Dict positions = {};
  Dict data = {};
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
// Nothing of an earlier attempt is written any more, and what it left half-written is gone. With a failure: it is not,
// and whoever uses a name again clears it first.
struct StorageSettled {
  int attempt;
  std::optional<std::string> failure = {};
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
// A worker that was cancelled is ready for the next attempt.
struct BecameReady {
  int rank;
};
// Ranks (all when empty) will be lost in so many seconds; in the usual time when nobody said.
struct PreemptionAnnounced {
  std::vector<int> ranks;
  std::optional<double> seconds;
  std::string why;
};
// Nothing has been reported for long, and the stacks are written down.
struct HangNoticed {
  int rank;  // the one that seems to hold the others up
  std::string summary;
  std::string path;
};
// What a rank waits for, of all that it waits for at the moment.
struct RankWait {
  std::vector<std::string> keys = {};  // of the store that nobody has set
  std::int64_t collectives = 0;        // barriers and broadcasts that others have not come to

  bool operator==(const RankWait&) const = default;
};
// Every rank that has not returned waits for what only another one could do, and none of their threads can do anything.
struct DeadlockFound {
  std::map<int, RankWait> waits;  // by rank
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
                           UploadsDrained, FunctionReturned, FunctionFailed, StopRequested, TimerFired, GangReclaimed,
                           RoomGrew, BecameReady, PreemptionAnnounced, HangNoticed, DeadlockFound, StorageSettled>;

}  // namespace trireme::control
