#pragma once

#include <variant>
#include <vector>

#include "control/event.h"

// What decide() wants done. The controller does it, in order.

namespace trireme::control {

struct ReserveGang {};
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
struct ReleaseGang {};
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
};
struct Commit {
  ReadyCheckpoint checkpoint;
};
// After the commit that made it superfluous is durable.
struct RemoveCheckpoint {
  std::string name;
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
// Forget the store, the barriers and unfinished checkpoints of the attempt that is over.
struct ResetAttempt {};
struct Finish {};

using Action = std::variant<ReserveGang, StartProcess, SendStart, SendGoodbye, KillProcess, ReleaseGang, ArmTimer,
                            DisarmTimer, Record, RecordFailure, Commit, RemoveCheckpoint, UpdateManifest, TellCommitted,
                            SendStop, ResetAttempt, Finish>;

}  // namespace trireme::control
