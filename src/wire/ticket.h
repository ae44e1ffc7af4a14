#pragma once

#include <string>

#include "base/result.h"
#include "trireme/value.h"
#include "wire/address.h"

namespace trireme::wire {

// What a worker or an agent needs to connect to its driver. It contains a key, so it is passed on a descriptor.
struct Ticket {
  Address address;
  std::string key;
  std::string run_id;  // for agents: of the driver's engine
  std::string key_name = {};
};

// The names of the keys in tickets. A peer is only admitted as the one that its key was made for.
std::string worker_key_name(int attempt, int rank);
std::string agent_key_name(int number);

// With the key of that name, derived from the run's secret. The caller adds the fields of its kind of ticket.
Dict make_ticket(const Address& address, const std::string& secret, const std::string& run_id,
                 const std::string& key_name);

base::Result<Ticket> parse_ticket(const Dict& dict);
// A field that only one kind of ticket has.
base::Result<int> number_in_ticket(const Dict& dict, const char* name);

}  // namespace trireme::wire
