#include "base/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <memory>

namespace trireme::base {

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

}  // namespace trireme::base
