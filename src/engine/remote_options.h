#pragma once

#include <string>

#include "base/result.h"
#include "trireme/value.h"
#include "wire/address.h"

// The engine options that are the same for all clusters; the others belong to the adapter.

namespace trireme::engine {

struct RemoteOptions {
  std::string driver_host;  // empty: the adapter's choice
  int first_port = 0;       // 0: any free port
  int last_port = 0;
  double node_timeout_s = 2.5;     // an agent that is silent for this long is lost, with its node
  double lease_s = 10.0;           // agents and workers that hear nothing for this long end themselves
  double agent_timeout_s = 120.0;  // between the start of an agent and its connection
};

// Removes these options from `options`.
base::Result<RemoteOptions> take_remote_options(Dict& options);

// The IP address of a host name; of this machine, if it is empty.
base::Result<std::string> resolve_host(const std::string& host);

}  // namespace trireme::engine
