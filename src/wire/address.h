#pragma once

#include <string>

#include "base/result.h"

namespace trireme::wire {

// Where a controller listens.
//   unix:@trireme-5f2c...              an abstract Unix socket: one machine, and nothing of it stays in the file system
//   tls://10.0.0.1:40123#<sha256>      TCP with TLS; the fingerprint is that of the controller's certificate
struct Address {
  enum class Kind { kUnix, kTls };
  Kind kind = Kind::kUnix;
  std::string name;  // of the abstract socket, without the @
  std::string host;
  int port = 0;
  std::string fingerprint;  // hex

  std::string text() const;
  bool operator==(const Address&) const = default;
};

base::Result<Address> parse_address(const std::string& text);

}  // namespace trireme::wire
