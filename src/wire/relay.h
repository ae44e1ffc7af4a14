#pragma once

#include <array>
#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "wire/client.h"
#include "wire/listener.h"
#include "wire/relay_protocol.h"

namespace trireme::wire {

// Carries the connections of the workers of one node and run over one connection to their controller: a connection of
// its own for each worker would cost the controller a TLS handshake, 34 KB of buffers, and system calls for each
// message.
//
// It passes bytes on and reads none of them: workers and the controller prove their keys to each other as on a direct
// connection, heartbeats and leases are theirs, and the end of one connection is the end of the other. What it holds is
// bounded: it reads from no worker while too much waits for the controller, and the controller sends a worker no more
// than a window until the worker has read it.
//
// Not thread-safe: all calls must be on the thread of the io_context. Shared with its coroutines, until close().
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  // The controller, and a key that it accepts: that of one of the workers.
  struct Controller {
    Address address;
    std::string key;
    Hello hello;
  };
  // Listens for workers, and connects to the controller at the same time. `ended` is called when the connection to the
  // controller has been lost, and with it those of the workers.
  static base::Result<std::shared_ptr<Relay>> open(asio::io_context& io, Controller controller,
                                                   std::function<void()> ended);

  // For the workers.
  const Address& address() const { return listener_->address(); }
  // Whether it is connected or connecting. Otherwise workers only get the reason.
  bool usable() const { return unusable_.empty(); }
  void close();

 private:
  struct Line {
    std::uint32_t number = 0;
    std::shared_ptr<SocketChannel> worker;
    std::size_t received = 0;  // from the controller
    std::size_t granted = 0;
  };

  Relay(asio::io_context& io, Controller controller, std::function<void()> ended);

  static asio::awaitable<void> connect(std::shared_ptr<Relay> self);
  static asio::awaitable<void> carry(std::shared_ptr<Relay> self, std::shared_ptr<Line> line);
  void accept(Socket socket);
  void begin(std::shared_ptr<SocketChannel> worker);
  void refuse(SocketChannel& worker) const;
  void give_up(const std::string& why);
  base::Result<void> take(const RelayFrame& frame);
  void grant(Line& line);
  void send(RelayFrame::Kind kind, std::uint32_t number, std::string_view data = {});
  void write();
  void end();

  asio::io_context& io_;
  Controller controller_;
  std::function<void()> ended_;
  std::shared_ptr<Listener> listener_;                   // shared with its coroutine
  std::shared_ptr<SocketChannel> carrier_;               // shared with its operations; null: not connected
  std::string unusable_;                                 // why
  std::vector<std::shared_ptr<SocketChannel>> waiting_;  // for the connection to the controller
  std::map<std::uint32_t, std::shared_ptr<Line>> lines_;
  std::uint32_t next_line_ = 1;
  std::string queued_;  // for the controller
  bool write_posted_ = false;
  asio::steady_timer patience_{io_};
  asio::steady_timer room_{io_};  // cancelled when there is room in the queue
  std::array<char, kRelayPiece> buffer_{};
};

}  // namespace trireme::wire
