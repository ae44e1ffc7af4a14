#pragma once

#include <map>
#include <optional>
#include <string>

namespace trireme::agent {

using Environment = std::map<std::string, std::string>;

// The environment of a worker on this node: that of the driver, so that a script finds what it finds on one machine,
// except for the variables that describe a machine or a job's place on it. Those are taken from `node`.
Environment node_environment(Environment driver, const Environment& node);

// The IP address of this end of a connected socket; empty: unknown.
std::string local_address(int socket);

// The name of the network interface that has this IP address; nullopt if none has.
std::optional<std::string> interface_of(const std::string& address);

}  // namespace trireme::agent
