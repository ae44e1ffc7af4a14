#pragma once

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "wire/handshake.h"
#include "wire/relay_protocol.h"
#include "wire/server_handler.h"

namespace trireme::wire {

class RelayedChannel;

// The controller's end of the connection to a relay (relay.h). Each connection that it carries is greeted like one of
// its own, so a relay can only speak for workers whose keys it has, and then has a channel of its own.
class RelayLink : public std::enable_shared_from_this<RelayLink> {
 public:
  struct Greets {
    std::string secret;
    std::chrono::milliseconds time;
    std::function<void(const base::Error& why)> refused;
  };
  RelayLink(asio::io_context& io, std::shared_ptr<SocketChannel> carrier, Greets greets, ServerHandler& handler);

  // Until the connection to the relay ends, and with it all that it carries.
  asio::awaitable<void> run();
  // Passes what is queued to the socket at once, as far as it takes it.
  void flush() { write(); }
  // Lets go of its channels, which refer to it, without telling the handler: run() never ends if the io_context has
  // stopped.
  void abandon();

 private:
  friend class RelayedChannel;
  using Channels = std::unordered_map<std::uint32_t, std::shared_ptr<RelayedChannel>>;

  base::Result<void> take(const RelayFrame& frame);
  void open(std::uint32_t number);
  void end(const base::Error& why);
  // The channel has something to send.
  void list(std::shared_ptr<RelayedChannel> channel);
  void drop(std::uint32_t number);
  void write_soon();
  void write();
  void limit_greetings();

  asio::io_context& io_;
  std::shared_ptr<SocketChannel> carrier_;
  Greets greets_;
  ServerHandler& handler_;
  Channels channels_;
  std::size_t greeting_ = 0;                            // channels that have not proved their key yet
  std::deque<std::shared_ptr<RelayedChannel>> listed_;  // in turn
  std::string closes_;                                  // frames to be sent before the others
  bool write_posted_ = false;
  asio::steady_timer greeting_timer_{io_};
};

}  // namespace trireme::wire
