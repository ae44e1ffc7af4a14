#include "boosting/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "trireme/context.h"

namespace trireme::boosting {
namespace {

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

std::set<std::string> names() {
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

Connections::Connections() : before_(names()) {}

void Connections::record() {
  for (const auto& name : names()) {
    if (!before_.contains(name)) opened_.insert(name);
  }
}

void Connections::cut() const {
  for (const auto& [name, fd] : tcp_sockets()) {
    if (opened_.contains(name)) cut_socket(fd);
  }
}

std::string own_address() {
  if (context().num_nodes == 1) return "127.0.0.1";
  if (const char* address = std::getenv("TRIREME_NODE_ADDRESS")) return address;  // the agent of a cluster sets it
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host, nullptr, &hints, &found) != 0) {
    throw std::runtime_error(std::string("the address of host ") + host + " cannot be found");
  }
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr, text, sizeof text);
  ::freeaddrinfo(found);
  return text;
}

void cut_ports(const std::set<int>& ports) {
  for (const auto& [name, fd] : tcp_sockets()) {
    if (ports.contains(port_of(fd, &::getsockname)) || ports.contains(port_of(fd, &::getpeername))) cut_socket(fd);
  }
}

}  // namespace trireme::boosting
