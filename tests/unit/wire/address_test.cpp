#include "wire/address.h"

#include <doctest/doctest.h>

#include "wire/endpoint.h"

namespace address_test {

using namespace trireme::wire;

TEST_CASE("address round trip") {
  for (const char* text :
       {"unix:@trireme-5f2c", "unix:@a:b#c/d", "tls://10.0.0.1:40123", "tls://::1:80", "tls://127.0.0.1:0"}) {
    CAPTURE(text);
    auto address = parse_address(text);
    REQUIRE(address);
    CHECK(address->text() == text);
    CHECK(endpoint_of(*address));
  }
  auto bare = parse_address("tls://127.0.0.1:7");
  REQUIRE(bare);
  CHECK(bare->kind == Address::Kind::kTls);
  CHECK(bare->host == "127.0.0.1");
  CHECK(bare->port == 7);
}

TEST_CASE("invalid addresses are rejected with their text") {
  struct Row {
    const char* text;
    const char* says;
  };
  for (const Row& row :
       {Row{"", "neither"}, Row{"unix:@", "has no socket name"}, Row{"unix:/tmp/x", "neither"},
        Row{"http://a:1", "neither"}, Row{"tls://", "no port"}, Row{"tls://:80", "no port"},
        Row{"tls://host", "no port"}, Row{"tls://host:", "is not a port"}, Row{"tls://host:x", "is not a port"},
        Row{"tls://host:1x", "is not a port"}, Row{"tls://host:-1", "is not a port"},
        Row{"tls://host:65536", "is not a port"}, Row{"tls://host:99999999999", "is not a port"}}) {
    auto address = parse_address(row.text);
    REQUIRE_FALSE(address);
    CAPTURE(address.error().message());
    CHECK(address.error().message().find(row.says) != std::string::npos);
    CHECK(address.error().message().find(row.text) != std::string::npos);
  }
}

TEST_CASE("endpoints need an IP address or a name that fits") {
  auto named = parse_address("tls://localhost:80");
  REQUIRE(named);
  CHECK(endpoint_of(*named).error().message() == "'localhost' is not an IP address");
  CHECK_FALSE(endpoint_of(*parse_address("unix:@" + std::string(200, 'x'))));
  CHECK(endpoint_of(*parse_address("unix:@" + std::string(100, 'x'))));
}

}  // namespace address_test
