#include "base/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>

namespace trireme::base {
namespace {

constexpr int kPortAttempts = 200;

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
  if (std::max(below, above) < kPortAttempts) return {low, high};
  return below >= above ? std::pair{10000, low - 1} : std::pair{high + 1, 65535};
}

bool is_connection(int fd) {
  int domain = 0, type = 0, listens = 0;
  socklen_t size = sizeof(int);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return false;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return false;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) return false;
  return (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM && listens == 0;
}

// "socket:[inode]" -> descriptor.
std::map<std::string, int> tcp_sockets() {
  std::map<std::string, int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // in the meantime
    const std::string link = std::filesystem::read_symlink(entry.path(), closed);
    if (closed || !link.starts_with("socket:[")) continue;
    const int fd = std::stoi(entry.path().filename());
    if (is_connection(fd)) found.emplace(link, fd);
  }
  return found;
}

std::set<std::string> names_of_tcp_sockets() {
  std::set<std::string> found;
  for (const auto& [name, fd] : tcp_sockets()) found.insert(name);
  return found;
}

void cut_socket(int fd) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int kept = ::dup(fd);
  ::dup3(null, fd, O_CLOEXEC);
  ::shutdown(kept, SHUT_RDWR);  // wakes threads that wait in recv()
  ::close(kept);
  ::close(null);
}

// 0: not connected any more.
int port_of(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* each = list; each; each = each->ifa_next) {
    if (!each->ifa_addr) continue;
    if (auto address = ip_text(*each->ifa_addr); !address.empty()) found.push_back({each->ifa_name, address});
  }
  return found;
}

std::string ip_text(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* raw = nullptr;
  if (address.sa_family == AF_INET) raw = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  if (address.sa_family == AF_INET6) raw = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return raw && ::inet_ntop(address.sa_family, raw, text, sizeof text) ? text : "";
}

std::string node_address(int nodes) {
  if (nodes == 1) return "127.0.0.1";
  if (const char* address = std::getenv("TRIREME_NODE_ADDRESS")) return address;  // the agent of a cluster sets it
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host, nullptr, &hints, &found) != 0) {
    throw std::runtime_error(std::string("the address of host ") + host + " cannot be found");
  }
  const std::string text = ip_text(*found->ai_addr);
  ::freeaddrinfo(found);
  return text;
}

ReservedPort::ReservedPort() {
  const auto [first, last] = ports_to_choose_from();
  std::random_device random;
  std::uniform_int_distribution<int> choose(first, last);
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    port_ = choose(random);
    lock_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (can_lock(lock_, port_) && can_bind(port_)) return;
    ::close(lock_);
  }
  throw std::runtime_error("no free TCP port was found in " + std::to_string(kPortAttempts) + " attempts, between " +
                           std::to_string(first) + " and " + std::to_string(last));
}

ReservedPort::~ReservedPort() { ::close(lock_); }

TcpConnections::TcpConnections() : before_(names_of_tcp_sockets()) {}

void TcpConnections::record() {
  for (const auto& name : names_of_tcp_sockets()) {
    if (!before_.contains(name)) opened_.insert(name);
  }
}

void TcpConnections::cut() const {
  for (const auto& [name, fd] : tcp_sockets()) {
    if (opened_.contains(name)) cut_socket(fd);
  }
}

void cut_ports(const std::set<int>& ports) {
  for (const auto& [name, fd] : tcp_sockets()) {
    if (ports.contains(port_of(fd, &::getsockname)) || ports.contains(port_of(fd, &::getpeername))) cut_socket(fd);
  }
}

}  // namespace trireme::base
