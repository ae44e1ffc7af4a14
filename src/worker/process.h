#pragma once

#include <string>

#include "worker/session.h"

// What a worker does to its own process. Not in tests, whose workers are threads.

namespace trireme::worker {

// A SIGTERM of a scheduler, or of a person, announces that this process will be killed: the session tells the
// controller, and the function goes on until then. One of the driver's own, or a second one, ends the process as usual.
// The session must live until the process ends.
void watch_termination(Session& session);

// Standard output and error go to the end of this file from now on.
Result<void> redirect_output(const std::string& path);

}  // namespace trireme::worker
