#include "wire/ticket.h"

#include <doctest/doctest.h>

#include "base/json.h"
#include "wire/secret.h"

namespace ticket_test {

using namespace trireme;
using namespace trireme::wire;

TEST_CASE("a ticket has the key of one peer, and not the secret of the run") {
  const std::string secret = random_bytes(kSecretSize);
  const auto address = *parse_address("tls://10.0.0.1:40123");
  const Dict made = make_ticket(address, secret, "run", worker_key_name(2, 7));
  auto ticket = parse_ticket(*base::parse_json_dict(base::to_json(made)));
  REQUIRE(ticket);
  CHECK(ticket->address == address);
  CHECK(ticket->run_id == "run");
  CHECK(ticket->key_name == "worker/2/7");
  CHECK(ticket->key == key_of(secret, "worker/2/7"));
  CHECK(ticket->key != secret);
  CHECK(ticket->key != parse_ticket(make_ticket(address, secret, "run", worker_key_name(3, 7)))->key);
  CHECK(agent_key_name(7) == "agent/7");
}

}  // namespace ticket_test
