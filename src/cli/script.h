#pragma once

#include <string>
#include <vector>

#include "base/result.h"

// Shared by the commands that run a script.

namespace trireme::cli {

// "trireme run [options] script.py [args...]"
std::string usage_of(const std::string& command);

// An error unless `words` begins with a Python script. The words after it are its arguments.
base::Result<void> check_script(const std::string& command, const std::vector<std::string>& words);
base::Error unknown_option(const std::string& command, const std::string& option);

// Prints the error and returns kWrongUsage.
int wrong_usage(const base::Error& error);

// Replaces this process by Python with these arguments; returns kNoPython if no Python is found.
int become_python(std::vector<std::string> arguments);
// The same; or, if detached, Python with these arguments starts where the engine of set_engine() runs drivers, and
// outlives this process.
int become_driver(std::vector<std::string> arguments, bool detached);

}  // namespace trireme::cli
