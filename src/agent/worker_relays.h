#pragma once

#include <asio/io_context.hpp>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "wire/relay.h"
#include "wire/ticket.h"

namespace trireme::agent {

// The relays for the workers that this agent starts: one for each run. They have a thread of their own, because
// heartbeats must not wait while the agent starts or ends processes.
class WorkerRelays {
 public:
  // `agent`: its number, for the greeting.
  explicit WorkerRelays(int agent);
  // Ends all connections.
  ~WorkerRelays();

  // Where a worker with this ticket connects, instead of the controller's address. A relay for its run is opened if
  // there is none.
  base::Result<wire::Address> address_for(const wire::Ticket& worker);

 private:
  base::Result<wire::Address> open(const wire::Ticket& worker);

  const int agent_;
  asio::io_context io_{1};
  std::map<std::string, std::shared_ptr<wire::Relay>> relays_;  // by run; shared with their coroutines
  std::jthread thread_;                                         // last: stops first
};

}  // namespace trireme::agent
