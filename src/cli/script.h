#pragma once

#include <string>
#include <vector>

#include "base/result.h"

// What the commands that start Python have in common.

namespace trireme::cli {

// Refuses what is no file, with words of the command that it was given to.
base::Result<void> check_script(const std::string& command, const std::string& script);

// Becomes Python with these arguments; returns, with kNoPython, only where there is none.
int become_python(std::vector<std::string> arguments);

}  // namespace trireme::cli
