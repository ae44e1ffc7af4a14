#include "wire/ticket.h"

#include <limits>

#include "base/dict_fields.h"
#include "base/hex.h"
#include "wire/secret.h"

namespace trireme::wire {

std::string worker_key_name(int attempt, int rank) { return fmt::format("worker/{}/{}", attempt, rank); }

std::string agent_key_name(int number) { return fmt::format("agent/{}", number); }

Dict make_ticket(const Address& address, const std::string& secret, const std::string& run_id,
                 const std::string& key_name) {
  return {{"address", address.text()},
          {"key", base::to_hex(key_of(secret, key_name))},
          {"key_name", key_name},
          {"run_id", run_id}};
}

base::Result<Ticket> parse_ticket(const Dict& dict) {
  for (const char* name : {"address", "key", "run_id"}) {
    if (base::text_of(dict, name).empty()) return base::error("the ticket has no '{}'", name);
  }
  Ticket ticket;
  TRIREME_ASSIGN(ticket.address, parse_address(base::text_of(dict, "address")));
  auto key = base::from_hex(base::text_of(dict, "key"));
  if (!key) return base::error("the ticket's key is not hex");
  ticket.key = *std::move(key);
  ticket.key_name = base::text_of(dict, "key_name");
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
