#include "engine/remote_options.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <memory>

#include "base/host.h"
#include "base/text.h"

namespace trireme::engine {
namespace {

using base::Result;

Result<void> take_seconds(Dict& options, const char* name, double& seconds) {
  if (!options.contains(name)) return {};
  const Value value = options[name];
  options.erase(name);
  if (!value.is_number() || !(value.as_double() > 0)) {
    return base::error("engine_options['{}']: must be a positive number of seconds", name);
  }
  seconds = value.as_double();
  return {};
}

// "7000-7100" or 7000.
Result<void> take_ports(Dict& options, RemoteOptions& taken) {
  if (!options.contains("ports")) return {};
  const Value value = options["ports"];
  options.erase("ports");
  const auto* text = value.get_if<std::string>();
  const std::string written = text ? *text : value.get_if<std::int64_t>() ? std::to_string(value.as_int()) : "";
  const auto numbers = base::split(written, '-');
  const auto parse = [](const std::string& number, int& port) {
    const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), port);
    return failure == std::errc() && end == number.data() + number.size() && port >= 1024 && port <= 65535;
  };
  const bool good = (numbers.size() == 1 || numbers.size() == 2) && parse(numbers.front(), taken.first_port) &&
                    parse(numbers.back(), taken.last_port) && taken.first_port <= taken.last_port;
  if (good) return {};
  return base::error("engine_options['ports'] = '{}': use a range from 1024 to 65535, such as \"7000-7100\"", written);
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* raw = nullptr;
  if (address->sa_family == AF_INET) raw = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6) raw = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return raw && ::inet_ntop(address->sa_family, raw, text, sizeof text) ? text : "";
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// Debian maps a machine's own name to 127.0.1.1, which other machines cannot reach.
std::string address_of_an_interface() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* each = list; each; each = each->ifa_next) {
    if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET) continue;
    if (const auto text = address_text(each->ifa_addr); !is_loopback(text)) return text;
  }
  return "";
}

}  // namespace

Result<RemoteOptions> take_remote_options(Dict& options) {
  RemoteOptions taken;
  if (options.contains("driver_host")) {
    const auto* host = options["driver_host"].get_if<std::string>();
    if (!host || host->empty()) return base::error("engine_options['driver_host']: must be a host name or an address");
    taken.driver_host = *host;
    options.erase("driver_host");
  }
  TRIREME_TRY(take_ports(options, taken));
  TRIREME_TRY(take_seconds(options, "node_timeout_s", taken.node_timeout_s));
  TRIREME_TRY(take_seconds(options, "lease_s", taken.lease_s));
  TRIREME_TRY(take_seconds(options, "agent_timeout_s", taken.agent_timeout_s));
  if (taken.lease_s < taken.node_timeout_s) {
    return base::error("engine_options: lease_s = {} must be at least node_timeout_s = {}", taken.lease_s,
                       taken.node_timeout_s);
  }
  return taken;
}

Result<std::string> resolve_host(const std::string& host) {
  const std::string name = host.empty() ? base::host_name() : host;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  std::string address;
  for (const addrinfo* each = failure == 0 ? found : nullptr; each; each = each->ai_next) {
    if (address.empty() || each->ai_family == AF_INET) address = address_text(each->ai_addr);
    if (each->ai_family == AF_INET) break;
  }
  if (host.empty() && (address.empty() || is_loopback(address))) {
    if (auto other = address_of_an_interface(); !other.empty()) return other;
  }
  if (!address.empty()) return address;
  return base::error(
      "the address that nodes reach this machine at is unknown: '{}' does not resolve ({}); set "
      "engine_options={{\"driver_host\": \"...\"}}",
      name, ::gai_strerror(failure));
}

}  // namespace trireme::engine
