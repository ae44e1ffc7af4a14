#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "control/state.h"

// The events of a run. The controller creates them from messages, engine events and timers.

namespace trireme::control {

enum class Timer {
  kStart,    // the gang has not started in time
  kCause,    // the wait for a better cause is over
  kStop,     // the gang has not ended in time, or has not left the function
  kAbort,    // cancelled workers have not aborted their collectives in time
  kSilence,  // checkpoints have waited long enough for ranks that never report
  kPause,    // the next attempt may start
  kResize,   // check for more room
  kPreempt,  // the announced preemption is due
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
// The engine reclaims the gang's room.
struct GangReclaimed {
  int gang;
  std::string why;
  std::optional<double> seconds;
  std::string node_id = {};  // only the room on this node; empty: all of it
  bool elsewhere = false;    // the workers may find room on other nodes
};
// A node of the gang is lost; its processes there have ended, or end soon.
struct GangLost {
  int gang;
  std::string why;
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
  bool node_lost = false;  // another node may be able to start it
};
struct ProcessExited {
  int rank;
  engine::ExitStatus status;
  std::string out_of_memory = {};
  std::string full_log = {};   // path of its log file if no space was left for it
  std::string watchdog = {};   // see Worker
  std::string node_lost = {};  // see Worker
};
struct Connected {
  int rank;
  int pid;
  std::string host;
};
// The connection is closed, or the peer is silent.
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
  int nodes = 0;  // that hold the files in memory; 0: they are in the storage
};
// The manifest is durable, or it could not be written.
struct CommitEnded {
  ReadyCheckpoint checkpoint;
  std::vector<std::string> conflicts;  // files that ranks wrote with different content
  std::optional<std::string> failure;
  bool in_memory = false;  // nodes hold the files; CheckpointStored or CheckpointLost follows
};
// A checkpoint that was committed in the memory of nodes is durable in the storage now.
struct CheckpointStored {
  std::int64_t index;
  std::string name;
  std::int64_t bytes = 0;
  double seconds = 0.0;  // since it was committed
};
// It could not be copied from the memory of nodes.
struct CheckpointLost {
  std::int64_t index;
  std::string name;
  std::string why;
};
// The checkpoint that an attempt resumes from if newer ones are lost.
struct EarlierStart {
  std::int64_t first_report = 0;
  Dict positions;
  std::string why;
};
// No write of an earlier attempt is in progress, and its incomplete files are removed. With a failure: they are not,
// and must be removed before a name is reused.
struct StorageSettled {
  int attempt;
  std::optional<std::string> failure = {};
  std::optional<EarlierStart> earlier = {};  // newer checkpoints are lost with the nodes that held them
};
struct ValidationEnded {
  std::string name;
  checkpoint::Status status;
  Metrics metrics;
  std::string message;
};
// The rank has no upload in flight.
struct UploadsDrained {
  int rank;
};
struct FunctionReturned {
  int rank;
  ReturnValue value;
};
// A worker that was cancelled has aborted its collectives: it no longer uses memory of other ranks.
struct CollectivesAborted {
  int rank;
};
// A worker that was cancelled is ready for the next attempt.
struct BecameReady {
  int rank;
};
// Ranks (all if empty) will be lost in `seconds`; without a value, after the default grace period.
struct PreemptionAnnounced {
  std::vector<int> ranks;
  std::optional<double> seconds;
  std::string why;
  std::optional<bool> elsewhere = {};  // the run may continue on other nodes, even if all ranks are preempted
};
// No rank has reported for too long, and the stacks are written to a file.
struct HangNoticed {
  int rank;  // the rank that probably blocks the others
  std::string summary;
  std::string path;
};
// The stacks of all ranks, taken because collective operations may fail soon for lack of progress.
struct StacksTaken {
  GangStacks stacks;
};
// What a rank waits for at the moment.
struct RankWait {
  std::vector<std::string> keys = {};  // store keys that are not set
  std::int64_t collectives = 0;        // barriers and broadcasts that other ranks have not reached

  bool operator==(const RankWait&) const = default;
};
// Every rank that has not returned waits for another rank, and no thread can make progress.
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
                           RoomGrew, CollectivesAborted, BecameReady, PreemptionAnnounced, HangNoticed, DeadlockFound,
                           StorageSettled, StacksTaken, GangLost, CheckpointStored, CheckpointLost>;

}  // namespace trireme::control
