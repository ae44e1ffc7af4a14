#pragma once

#include <variant>
#include <vector>

#include "checkpoint/mark.h"
#include "control/event.h"

// The actions that decide() returns. The controller executes them in order.

namespace trireme::control {

struct ReserveGang {
  int gang;
  int size;
  bool optional;
};
struct StartProcess {
  int rank;
};
// Every rank is connected: send this one its ranks and the function.
struct SendStart {
  int rank;
};
struct SendGoodbye {
  int rank;
};
struct KillProcess {
  int rank;
  double grace_s;
};
struct ReleaseGang {
  int gang;
};
// Leave the function, keep the process.
struct SendCancel {
  int rank;
  std::string why;
  bool may_decline;  // the process may exit instead if its framework does not support being kept
};
// Leave the function with the checkpoint of that report or a later one.
struct SendLeaveAt {
  int rank;
  std::int64_t index;
};
struct SendPreemption {
  std::vector<int> ranks;
  double seconds;
  std::string why;
};
struct ArmTimer {
  Timer timer;
  double seconds;
};
struct DisarmTimer {
  Timer timer;
};
struct Record {
  std::string event;
  Dict fields;
};
struct RecordFailure {
  Failure failure;
  int attempt;                      // the same decision may start the next attempt
  std::vector<int> alike = {};      // ranks that failed with the same error after it
  std::optional<int> same_as = {};  // the first rank with this error, if it is another one
};
struct Commit {
  ReadyCheckpoint checkpoint;
};
// After the commit that made it superfluous is durable. Its name may have been reused by now.
struct RemoveCheckpoint {
  std::string name;
  checkpoint::Origin origin;
};
// Stores the result of a validation in the manifest.
struct UpdateManifest {
  KeptCheckpoint checkpoint;
};
// Workers may drop older snapshots, and calls that wait for commits are answered.
struct TellCommitted {
  std::int64_t index;
};
// Finish the uploads in flight, then report it.
struct SendStop {
  int rank;
};
// Drop the store and the barriers of the attempt that is over. For each rank of the next attempt: the rank whose
// process it takes over, or -1.
struct ResetAttempt {
  std::vector<int> taken_over;
};
// Remove incomplete files of the previous attempt. Takes as long as the storage needs; ends with StorageSettled.
struct SettleStorage {};
struct Finish {};

using Action = std::variant<ReserveGang, StartProcess, SendStart, SendGoodbye, KillProcess, ReleaseGang, ArmTimer,
                            DisarmTimer, Record, RecordFailure, Commit, RemoveCheckpoint, UpdateManifest, TellCommitted,
                            SendStop, ResetAttempt, Finish, SendCancel, SendLeaveAt, SendPreemption, SettleStorage>;

}  // namespace trireme::control
