#pragma once

#include <variant>
#include <vector>

#include "checkpoint/mark.h"
#include "control/event.h"

// What decide() wants done. The controller does it, in order.

namespace trireme::control {

struct ReserveGang {
  int gang;
  int size;
  bool optional;
};
struct StartProcess {
  int rank;
};
// Every rank has said hello: tell this one its place and what to run.
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
  bool may_decline;  // or end it instead, where its framework objects to being kept
};
// Leave it with the checkpoint of that report or a later one.
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
  int attempt;                      // a decision may begin the next one too
  std::vector<int> alike = {};      // ranks that failed with the same error after it
  std::optional<int> same_as = {};  // the first rank that did, where that is another one
};
struct Commit {
  ReadyCheckpoint checkpoint;
};
// After the commit that made it superfluous is durable. Its name may be written to again by now.
struct RemoveCheckpoint {
  std::string name;
  checkpoint::Origin origin;
};
// The outcome of a validation goes into the manifest.
struct UpdateManifest {
  KeptCheckpoint checkpoint;
};
// Workers may forget older snapshots, and those who wait for commits are answered.
struct TellCommitted {
  std::int64_t index;
};
// Finish what is on its way to storage, then say so.
struct SendStop {
  int rank;
};
// Forget the store and the barriers of the attempt that is over. For each rank of the next one:
// the rank whose process it takes over, or -1.
struct ResetAttempt {
  std::vector<int> taken_over;
};
// Remove what the attempt before has left half-written. Takes as long as the storage does; StorageSettled tells its
// end.
struct SettleStorage {};
struct Finish {};

using Action = std::variant<ReserveGang, StartProcess, SendStart, SendGoodbye, KillProcess, ReleaseGang, ArmTimer,
                            DisarmTimer, Record, RecordFailure, Commit, RemoveCheckpoint, UpdateManifest, TellCommitted,
                            SendStop, ResetAttempt, Finish, SendCancel, SendLeaveAt, SendPreemption, SettleStorage>;

}  // namespace trireme::control
