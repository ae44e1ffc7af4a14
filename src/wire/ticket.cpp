#include "wire/ticket.h"

#include <limits>

#include "base/dict_fields.h"
#include "base/hex.h"

namespace trireme::wire {

base::Result<Ticket> parse_ticket(const Dict& dict) {
  for (const char* name : {"address", "secret", "run_id"}) {
    if (base::text_of(dict, name).empty()) return base::error("the ticket has no '{}'", name);
  }
  Ticket ticket;
  TRIREME_ASSIGN(ticket.address, parse_address(base::text_of(dict, "address")));
  auto secret = base::from_hex(base::text_of(dict, "secret"));
  if (!secret) return base::error("the ticket's secret is not hex");
  ticket.secret = *std::move(secret);
  ticket.run_id = base::text_of(dict, "run_id");
  return ticket;
}

base::Result<int> number_in_ticket(const Dict& dict, const char* name) {
  constexpr std::int64_t kAbsent = std::numeric_limits<std::int64_t>::min();
  const std::int64_t number = base::int_of(dict, name, kAbsent);
  if (number == kAbsent) return base::error("the ticket has no '{}'", name);
  return static_cast<int>(number);
}

}  // namespace trireme::wire
