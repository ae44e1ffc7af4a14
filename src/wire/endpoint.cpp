#include "wire/endpoint.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <asio/ip/tcp.hpp>
#include <cstddef>

namespace trireme::wire {

base::Result<asio::generic::stream_protocol::endpoint> endpoint_of(const Address& address) {
  using Endpoint = asio::generic::stream_protocol::endpoint;
  if (address.kind == Address::Kind::kUnix) {
    sockaddr_un socket{};
    socket.sun_family = AF_UNIX;
    if (address.name.size() >= sizeof(socket.sun_path))
      return base::error("socket name '{}' is too long", address.name);
    // A leading zero byte makes the name abstract: it exists for the lifetime of the socket and leaves no file.
    address.name.copy(socket.sun_path + 1, address.name.size());
    return Endpoint(&socket, offsetof(sockaddr_un, sun_path) + 1 + address.name.size());
  }
  asio::error_code failure;
  auto ip = asio::ip::make_address(address.host, failure);
  if (failure) return base::error("'{}' is not an IP address", address.host);
  return Endpoint(asio::ip::tcp::endpoint(ip, static_cast<unsigned short>(address.port)));
}

}  // namespace trireme::wire
