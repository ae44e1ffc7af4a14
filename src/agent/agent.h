#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "wire/ticket.h"

// The process of a node of a cluster: it starts and watches the workers there, on behalf of a driver elsewhere. It
// keeps a warm Python process, reports how workers end, and forwards their output. Everything that it started ends with
// it.

namespace trireme::agent {

struct Ticket : wire::Ticket {
  int agent = 0;                  // each start has a new number: a late one is refused
  std::string peers_secret = {};  // of the memory of all agents
  // Where it listens for other agents; 0: any free port.
  int first_port = 0;
  int last_port = 0;
};

base::Result<Ticket> parse_ticket(const std::string& json);

struct Options {
  std::vector<std::string> python;  // the interpreter; empty: no Python workers
};

// Serves the driver until it closes the connection, is silent for the lease, or a signal ends this process. Returns
// after everything that was started has ended: why the driver is gone, or why the agent could not join it.
base::Result<std::string> serve(const Ticket& ticket, const Options& options, const base::Clock& clock);

// The whole process: reads the ticket, one line, from standard input, and returns the exit code.
int run(const Options& options);

}  // namespace trireme::agent
