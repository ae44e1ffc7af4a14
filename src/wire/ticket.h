#pragma once

#include <string>

#include "base/result.h"
#include "trireme/value.h"
#include "wire/address.h"

namespace trireme::wire {

// What a worker or an agent needs to connect to its driver. It contains a secret, so it is passed on a descriptor.
struct Ticket {
  Address address;
  std::string secret;
  std::string run_id;  // for agents: of the driver's engine
};

base::Result<Ticket> parse_ticket(const Dict& dict);
// A field that only one kind of ticket has.
base::Result<int> number_in_ticket(const Dict& dict, const char* name);

}  // namespace trireme::wire
