#pragma once

#include <set>
#include <string>

namespace trireme::boosting {

// The TCP connections of this process that a library without an abort function has opened: those that exist at the time
// of record() and did not at construction.
class Connections {
 public:
  Connections();
  void record();
  // Ends all calls on them with an error, in whatever thread they are. The descriptors refer to /dev/null afterwards,
  // because a library that reads until it has everything would loop forever at the end of a connection.
  void cut() const;

 private:
  std::set<std::string> before_;
  std::set<std::string> opened_;
};

// The address at which the other workers reach this one.
std::string own_address();

// Cuts the connections from or to one of these ports in the same way.
void cut_ports(const std::set<int>& ports);

}  // namespace trireme::boosting
