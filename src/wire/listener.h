#pragma once

#include <asio/awaitable.hpp>
#include <asio/basic_socket_acceptor.hpp>
#include <asio/io_context.hpp>
#include <atomic>
#include <functional>
#include <memory>

#include "wire/address.h"
#include "wire/channel.h"

namespace trireme::wire {

// Listens on an address and accepts connections; on a Unix socket, only those of processes of the same user.
class Listener {
 public:
  using Accepted = std::function<void(Socket socket)>;

  // Shared with its coroutine, which ends after close().
  static base::Result<std::shared_ptr<Listener>> open(asio::io_context& io, Address address, Accepted accepted);

  // With the actual port.
  const Address& address() const { return address_; }
  // Connections of other users.
  std::uint64_t refused_users() const { return refused_users_; }
  void close();

 private:
  Listener(asio::io_context& io, Address address, Accepted accepted);

  base::Result<void> open();
  base::Result<void> bind();
  static asio::awaitable<void> accept_loop(std::shared_ptr<Listener> self);
  bool from_same_user(Socket& socket) const;

  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
  asio::io_context& io_;
  Address address_;
  Accepted accepted_;
  Acceptor acceptor_;
  std::atomic<std::uint64_t> refused_users_ = 0;  // read from other threads
};

}  // namespace trireme::wire
