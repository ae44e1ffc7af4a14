#pragma once

#include <string>

namespace trireme::base {

// The name of this machine; "localhost" if it has none.
std::string host_name();

// Identifies the process table that this process's pid belongs to: the boot of the machine and the pid namespace.
// Containers may share a host name and use the same pids, but never share this. Empty if /proc is unavailable.
std::string process_table();

}  // namespace trireme::base
