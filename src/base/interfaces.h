#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace trireme::base {

// An IP address of this machine, and the network interface that has it.
struct Interface {
  std::string name;
  std::string address;
};
std::vector<Interface> interfaces();

// Empty for addresses other than IPv4 and IPv6.
std::string ip_text(const sockaddr& address);

}  // namespace trireme::base
