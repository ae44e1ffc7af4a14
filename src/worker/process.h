#pragma once

#include <string>

#include "worker/session.h"

// Changes that a worker makes to its own process. Not used in tests, whose workers are threads.

namespace trireme::worker {

// A SIGTERM from a scheduler or a user announces that this process will be killed: the session notifies the controller,
// and the function continues until then. A SIGTERM from the driver, or a second one, ends the process as usual. The
// session must live until the process ends.
void watch_termination(Session& session);

// Takes SIGTERM back from a library that has replaced the handler of watch_termination().
void handle_termination();

// Appends standard output and standard error to this file from now on.
Result<void> redirect_output(const std::string& path);

}  // namespace trireme::worker
