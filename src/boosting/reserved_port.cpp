#include "boosting/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>

namespace trireme::boosting {
namespace {

constexpr int kAttempts = 200;

bool can_bind(int port) {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool bound = ::bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(probe);
  return bound;
}

bool can_lock(int socket, int port) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "trireme-port-" + std::to_string(port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

// The larger of the ranges below and above the kernel's.
std::pair<int, int> ports_to_choose_from() {
  int low = 32768, high = 60999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  const int below = low - 10000, above = 65535 - high;
  if (std::max(below, above) < kAttempts) return {low, high};
  return below >= above ? std::pair{10000, low - 1} : std::pair{high + 1, 65535};
}

}  // namespace

ReservedPort::ReservedPort() {
  const auto [first, last] = ports_to_choose_from();
  std::random_device random;
  std::uniform_int_distribution<int> choose(first, last);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    port_ = choose(random);
    lock_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (can_lock(lock_, port_) && can_bind(port_)) return;
    ::close(lock_);
  }
  throw std::runtime_error("no free TCP port was found in " + std::to_string(kAttempts) + " attempts, between " +
                           std::to_string(first) + " and " + std::to_string(last));
}

ReservedPort::~ReservedPort() { ::close(lock_); }

}  // namespace trireme::boosting
