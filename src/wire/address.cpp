#include "wire/address.h"

#include <charconv>

namespace trireme::wire {
namespace {

constexpr std::string_view kUnixPrefix = "unix:@";
constexpr std::string_view kTlsPrefix = "tls://";

}  // namespace

std::string Address::text() const {
  if (kind == Kind::kUnix) return fmt::format("{}{}", kUnixPrefix, name);
  return fmt::format("{}{}:{}", kTlsPrefix, host, port);
}

base::Result<Address> parse_address(const std::string& text) {
  Address address;
  std::string_view rest = text;
  if (rest.starts_with(kUnixPrefix)) {
    address.name = rest.substr(kUnixPrefix.size());
    if (address.name.empty()) return base::error("address '{}' has no socket name", text);
    return address;
  }
  if (!rest.starts_with(kTlsPrefix)) {
    return base::error("address '{}' is neither unix:@NAME nor tls://HOST:PORT", text);
  }
  rest.remove_prefix(kTlsPrefix.size());
  address.kind = Address::Kind::kTls;
  std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return base::error("address '{}' has no port", text);
  address.host = rest.substr(0, colon);
  std::string_view port = rest.substr(colon + 1);
  auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (failure != std::errc() || end != port.data() + port.size() || address.port < 0 || address.port > 65535) {
    return base::error("address '{}': '{}' is not a port", text, port);
  }
  return address;
}

}  // namespace trireme::wire
