#pragma once

namespace trireme::boosting {

// A TCP port that no other worker of this machine gets, for a library that binds it later, by its number.
//
// The port is outside of the range from which the kernel takes ports for connections. Workers of all runs lock it by an
// abstract Unix socket, which the kernel removes with the process; Python's workers use the same names.
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

}  // namespace trireme::boosting
