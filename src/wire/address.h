#pragma once

#include <string>

#include "base/result.h"

namespace trireme::wire {

// The address of a controller.
//   unix:@trireme-5f2c...              an abstract Unix socket: only this machine, no file in the file system
//   tls://10.0.0.1:40123               TCP with TLS
struct Address {
  enum class Kind { kUnix, kTls };
  Kind kind = Kind::kUnix;
  std::string name;  // name of the abstract socket, without the @
  std::string host;
  int port = 0;
  int last_port = 0;  // to listen: the first free one of port...last_port; 0: `port` only. Not part of the text

  std::string text() const;
  bool operator==(const Address&) const = default;
};

base::Result<Address> parse_address(const std::string& text);

}  // namespace trireme::wire
