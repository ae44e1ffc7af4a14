#pragma once

#include <string>

namespace trireme::base {

// This machine's name, as people and other machines know it; "localhost" where it has none.
std::string host_name();

// Which process table a pid of this process belongs to: this boot of the machine and the namespace of pids. Containers
// may share a host name and have the same pids; they never share this. Empty where /proc does not tell.
std::string process_table();

}  // namespace trireme::base
