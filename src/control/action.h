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
// Forget the store, the barriers and unfinished checkpoints of the attempt that is over.
struct ResetAttempt {};
struct Finish {};

using Action = std::variant<ReserveGang, StartProcess, SendStart, SendGoodbye, KillProcess, ReleaseGang, ArmTimer,
                            DisarmTimer, Record, RecordFailure, Commit, ResetAttempt, Finish>;

}  // namespace trireme::control
