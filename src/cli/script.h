#pragma once

#include <string>
#include <vector>

#include "base/result.h"

// Shared by the commands that start Python.

namespace trireme::cli {

// An error if `script` is not a file; `command` is named in the message.
base::Result<void> check_script(const std::string& command, const std::string& script);

// Replaces this process by Python with these arguments; returns kNoPython if no Python is found.
int become_python(std::vector<std::string> arguments);
// The same; or, if detached, Python with these arguments starts where the engine of set_engine() runs drivers, and
// outlives this process.
int become_driver(std::vector<std::string> arguments, bool detached);

}  // namespace trireme::cli
