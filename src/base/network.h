#pragma once

#include <sys/socket.h>

#include <set>
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

// The address at which the other workers of a run on this many nodes reach this one.
std::string node_address(int nodes);

// A TCP port that no other worker of this machine gets, for a library that binds it later, by its number.
//
// The port is outside of the range from which the kernel takes ports for connections. Workers of all runs lock it by an
// abstract Unix socket, which the kernel removes with the process.
class ReservedPort {
 public:
  ReservedPort();
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  int port() const { return port_; }

 private:
  int port_ = 0;
  int lock_ = -1;
};

// The TCP connections of this process that a library without an abort function has opened: those that exist at the time
// of record() and did not at construction.
class TcpConnections {
 public:
  TcpConnections();
  void record();
  // Ends all calls on them with an error, in whatever thread they are. The descriptors refer to /dev/null afterwards,
  // because a library that reads until it has everything would loop forever at the end of a connection.
  void cut() const;

 private:
  std::set<std::string> before_;
  std::set<std::string> opened_;
};

// Cuts the connections from or to one of these ports in the same way.
void cut_ports(const std::set<int>& ports);

}  // namespace trireme::base
