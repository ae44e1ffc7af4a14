#pragma once

#include <string>

#include "worker/session.h"

// Changes that a worker makes to its own process. Not used in tests, whose workers are threads.

namespace trireme::worker {

using SignalHandler = void (*)(int);

// A SIGTERM from a scheduler or a user announces that this process will be killed: the session notifies the controller,
// and the function continues until then. A SIGTERM from the driver, or a second one, ends the process as usual. The
// session must live until the process ends.
//
// interpreter: its handler, which runs the handlers of a script; nullptr: none. With an interpreter, handlers that
// libraries install later are replaced, and those of the script are called after the notice.
void watch_termination(Session& session, SignalHandler interpreter = nullptr);

// Appends standard output and standard error to this file from now on.
Result<void> redirect_output(const std::string& path);

}  // namespace trireme::worker
