#pragma once

#include <vector>

#include "control/action.h"
#include "control/event.h"
#include "control/state.h"

namespace trireme::control {

struct Decision {
  RunState state;
  std::vector<Action> actions;
};

// The complete policy of a run: state and actions that follow from an event. No socket, no clock, no thread; every
// restart and every decision is a row in tests/unit/control/decide_test.cpp.
Decision decide(RunState state, Event event, const Rules& rules);

}  // namespace trireme::control
