#pragma once

#include <asio/awaitable.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/ssl/context.hpp>
#include <asio/ssl/stream.hpp>
#include <memory>
#include <string>

#include "wire/frame.h"
#include "wire/message.h"

namespace trireme::wire {

using Socket = asio::generic::stream_protocol::socket;

// A connection that carries frames, over a Unix socket, TCP or TLS. Not thread-safe: all calls must be on the thread of
// its executor.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(Socket socket, std::size_t frame_limit);
  Channel(Socket socket, asio::ssl::context& tls, std::size_t frame_limit);

  asio::awaitable<base::Result<void>> tls_handshake(asio::ssl::stream_base::handshake_type side);

  // The next frame, valid until the next call. "closed by the peer" at the end of the connection.
  asio::awaitable<base::Result<std::string_view>> read_frame();
  asio::awaitable<base::Result<Message>> read_message();

  // Queues the message and returns. Unsent messages stay in memory; after close() they are dropped.
  void send(const Message& message);
  void send_payload(std::string_view payload);

  // Closes the connection after all queued messages are sent.
  void close_when_sent();
  void close();
  bool open() const { return open_; }

  void set_frame_limit(std::size_t limit) { reader_.set_limit(limit); }
  std::size_t unsent() const { return queued_.size() + writing_.size(); }

  // The authenticated peer; set by the handshake.
  const Hello& peer() const { return peer_; }
  void set_peer(Hello hello) { peer_ = std::move(hello); }

  Socket& socket() { return tls_ ? tls_->next_layer() : *plain_; }

 private:
  asio::awaitable<std::size_t> read_some(char* data, std::size_t size, asio::error_code& failure);
  void write_next();

  std::unique_ptr<Socket> plain_;  // exactly one of the two is set
  std::unique_ptr<asio::ssl::stream<Socket>> tls_;
  FrameReader reader_;
  std::string queued_;  // the next write, while writing_ is in progress
  std::string writing_;
  Hello peer_;
  bool open_ = true;
  bool closing_ = false;  // close once everything is sent
  bool broken_ = false;   // nothing more can be sent
};

}  // namespace trireme::wire
