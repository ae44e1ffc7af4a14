#include "boosting/connections.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <map>

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

}  // namespace

Connections::Connections() : before_(names()) {}

void Connections::record() {
  for (const auto& name : names()) {
    if (!before_.contains(name)) opened_.insert(name);
  }
}

void Connections::cut() const {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const auto& [name, fd] : tcp_sockets()) {
    if (!opened_.contains(name)) continue;
    const int kept = ::dup(fd);
    ::dup3(null, fd, O_CLOEXEC);
    ::shutdown(kept, SHUT_RDWR);  // wakes threads that wait in recv()
    ::close(kept);
  }
  ::close(null);
}

}  // namespace trireme::boosting
