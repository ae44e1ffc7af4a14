#pragma once

#include <asio/basic_socket_acceptor.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/socket_base.hpp>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "wire/address.h"
#include "wire/channel.h"
#include "wire/handshake.h"
#include "wire/tls.h"

namespace trireme::wire {

// Receives the events of the server's connections, on the thread that runs its io_context.
class ServerHandler {
 public:
  virtual ~ServerHandler() = default;
  virtual base::Result<Welcome> admit(const Hello& hello) = 0;
  virtual void opened(const std::shared_ptr<Channel>& channel) = 0;
  virtual void received(const std::shared_ptr<Channel>& channel, Message message) = 0;
  virtual void closed(const std::shared_ptr<Channel>& channel, const base::Error& why) = 0;
  // A peer did not prove that it belongs to the run. Called for the first ones only: there may be any number of them.
  virtual void refused([[maybe_unused]] const std::string& from, [[maybe_unused]] const base::Error& why) {}
};

// Accepts peers that prove the secret and passes their messages on. Unauthenticated peers (no proof, invalid data, an
// incomplete or oversized frame, another version, or no data within a few seconds) are disconnected and counted; none
// of their data reaches the handler.
//
// Its coroutines refer to it: destroy it only after its io_context has stopped running.
class Server {
 public:
  // `where` is kUnix with a name, or kTls with host and port (0: any free port).
  // `greeting_time` limits how long a peer may take to prove the secret.
  static base::Result<std::unique_ptr<Server>> listen(
      asio::io_context& io, Address where, std::string secret, ServerHandler& handler,
      std::chrono::milliseconds greeting_time = std::chrono::seconds(5));

  // The address for workers, with the actual port.
  const Address& address() const { return address_; }
  std::uint64_t refused_peers() const { return refused_peers_; }
  void close();

 private:
  struct GreetingLimit;

  Server(asio::io_context& io, Address address, std::string secret, ServerHandler& handler,
         std::chrono::milliseconds greeting_time);

  base::Result<void> open();
  base::Result<void> bind();
  asio::awaitable<void> accept_loop();
  asio::awaitable<void> serve(std::shared_ptr<Channel> channel);
  asio::awaitable<base::Result<void>> greet(const std::shared_ptr<Channel>& channel);
  asio::awaitable<base::Result<void>> prove(const std::shared_ptr<Channel>& channel);
  bool from_same_user(Socket& socket) const;
  void tell_refused(Channel& channel, const base::Error& why);

  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
  asio::io_context& io_;
  Address address_;
  std::string secret_;
  ServerHandler& handler_;
  std::chrono::milliseconds greeting_time_;
  std::optional<asio::ssl::context> tls_;
  Acceptor acceptor_;
  std::unordered_set<std::shared_ptr<Channel>> channels_;
  int told_refusals_ = 0;
  std::size_t greeting_ = 0;                      // connections that have not proved the secret yet
  std::atomic<std::uint64_t> refused_peers_ = 0;  // read from other threads
};

}  // namespace trireme::wire
