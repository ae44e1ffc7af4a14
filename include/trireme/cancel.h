#pragma once

#include <functional>

#include "trireme/export.h"

// For code that waits for other ranks by its own means, such as a communication library, inside a training function.
// The hooks apply to the current attempt. In local mode they are never called.

namespace trireme {

// Called on another thread as soon as the function must be left for another attempt. The function still runs: if it is
// blocked in a call that does not throw Interrupted, the hook ends that call, for example by aborting a communicator.
// It must not wait for other ranks, which are ended after it has returned. Throws Interrupted if the function must be
// left already.
TRIREME_API void on_cancel(std::function<void()> hook);

// Called on the function's thread after the function was left for another attempt, which uses the same process. If it
// throws, the process is replaced.
TRIREME_API void on_interrupt(std::function<void()> hook);

// The time limit of collectives, in seconds. Before it expires, the stacks of all ranks are recorded, so that a timeout
// is blamed on the rank that did not take part. trireme::torch sets it for its process groups.
TRIREME_API void set_collective_timeout(double seconds);

}  // namespace trireme
