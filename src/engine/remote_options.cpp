#include "engine/remote_options.h"

#include <netdb.h>

#include <charconv>
#include <memory>

#include "base/host.h"
#include "base/network.h"
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

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// Debian maps a machine's own name to 127.0.1.1, which other machines cannot reach.
std::string address_of_an_interface() {
  for (const auto& [name, address] : base::interfaces()) {
    if (address.find(':') == std::string::npos && !is_loopback(address)) return address;
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
    if (address.empty() || each->ai_family == AF_INET) address = base::ip_text(*each->ai_addr);
    if (each->ai_family == AF_INET) break;
  }
  if (host.empty() && (address.empty() || is_loopback(address))) {
    if (auto other = address_of_an_interface(); !other.empty()) return other;
  }
  if (!address.empty()) return address;
  return base::error(
      "could not determine the address at which nodes reach this machine: '{}' does not resolve ({}); set "
      "engine_options={{\"driver_host\": \"...\"}}",
      name, ::gai_strerror(failure));
}

}  // namespace trireme::engine
