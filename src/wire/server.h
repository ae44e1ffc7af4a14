#pragma once

#include <asio/io_context.hpp>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "wire/address.h"
#include "wire/channel.h"
#include "wire/handshake.h"
#include "wire/listener.h"
#include "wire/relay_link.h"
#include "wire/server_handler.h"
#include "wire/tls.h"

namespace trireme::wire {

// Accepts peers that prove the secret and passes their messages on. Unauthenticated peers (no proof, invalid data, an
// incomplete or oversized frame, another version, or no data within a few seconds) are disconnected and counted; none
// of their data reaches the handler. The connections that a relay carries (relay.h) are served like all others.
//
// Its coroutines refer to it: destroy it only after its io_context has stopped running.
class Server {
 public:
  // `where` is kUnix with a name, or kTls with host and port (0: any free port).
  // `greeting_time` limits how long a peer may take to prove the secret.
  static base::Result<std::unique_ptr<Server>> listen(
      asio::io_context& io, Address where, std::string secret, ServerHandler& handler,
      std::chrono::milliseconds greeting_time = std::chrono::seconds(5));

  ~Server();

  // The address for workers, with the actual port.
  const Address& address() const { return listener_->address(); }
  std::uint64_t refused_peers() const { return refused_peers_ + listener_->refused_users(); }
  void close();

 private:
  struct GreetingLimit;

  Server(asio::io_context& io, std::string secret, ServerHandler& handler, std::chrono::milliseconds greeting_time);

  void accept(Socket socket);
  asio::awaitable<void> serve(std::shared_ptr<SocketChannel> channel);
  asio::awaitable<void> serve_peer(const std::shared_ptr<SocketChannel>& channel);
  asio::awaitable<void> serve_relay(const std::shared_ptr<SocketChannel>& channel);
  asio::awaitable<base::Result<void>> greet(const std::shared_ptr<SocketChannel>& channel);
  asio::awaitable<base::Result<void>> prove(const std::shared_ptr<SocketChannel>& channel);
  void tell_refused(SocketChannel& channel, const base::Error& why);

  asio::io_context& io_;
  std::string secret_;
  ServerHandler& handler_;
  std::chrono::milliseconds greeting_time_;
  std::optional<asio::ssl::context> tls_;
  std::shared_ptr<Listener> listener_;  // shared with its coroutine
  std::unordered_set<std::shared_ptr<SocketChannel>> channels_;
  std::unordered_set<std::shared_ptr<RelayLink>> links_;
  int told_refusals_ = 0;
  std::size_t greeting_ = 0;                      // connections that have not proved the secret yet
  std::atomic<std::uint64_t> refused_peers_ = 0;  // read from other threads
};

}  // namespace trireme::wire
