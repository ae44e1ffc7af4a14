#pragma once

#include "trireme/export.h"

// The whole command, for its two programs: src/cli/main.cpp, which contains the core, and the one in the Python
// package, which finds it in the extension by this name.
extern "C" TRIREME_API int trireme_command_line(int argc, char** argv);
