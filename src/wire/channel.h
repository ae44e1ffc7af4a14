#pragma once

#include <asio/awaitable.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/ssl/context.hpp>
#include <asio/ssl/stream.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "wire/frame.h"
#include "wire/message.h"

namespace trireme::wire {

using Socket = asio::generic::stream_protocol::socket;

// A connection to an authenticated peer, as handlers see it. Not thread-safe: all calls must be on the thread of its
// executor.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  virtual ~Channel() = default;

  // Queues the message and returns. Unsent messages stay in memory; after close() they are dropped.
  void send(const Message& message);
  virtual void send_payload(std::string_view payload) = 0;

  // Closes the connection after all queued messages are sent.
  virtual void close_when_sent() = 0;
  virtual void close() = 0;
  virtual bool open() const = 0;
  virtual std::size_t unsent() const = 0;

  // The authenticated peer; set by the handshake.
  const Hello& peer() const { return peer_; }
  void set_peer(Hello hello) { peer_ = std::move(hello); }

 private:
  Hello peer_;
};

// Over a socket of its own: a Unix socket, TCP or TLS.
class SocketChannel final : public Channel {
 public:
  SocketChannel(Socket socket, std::size_t frame_limit);
  SocketChannel(Socket socket, asio::ssl::context& tls, std::size_t frame_limit);

  asio::awaitable<base::Result<void>> tls_handshake(asio::ssl::stream_base::handshake_type side);

  // The next frame, valid until the next call. "closed by the peer" at the end of the connection.
  asio::awaitable<base::Result<std::string_view>> read_frame();
  asio::awaitable<base::Result<Message>> read_message();

  void send_payload(std::string_view payload) override;
  void close_when_sent() override;
  void close() override;
  bool open() const override { return open_; }
  std::size_t unsent() const override { return queued_.size() + writing_.size(); }

  void set_frame_limit(std::size_t limit) { reader_.set_limit(limit); }
  // For connections that carry those of many peers.
  void set_read_size(std::size_t size) { reader_.set_small_buffer(size); }

  // Bytes as they are, for relays: frames that others have made, or parts of them. read_bytes() is for plain sockets
  // and returns what has arrived in `buffer`, which nobody else uses until the result is handled.
  void send_bytes(std::string_view bytes);
  asio::awaitable<base::Result<std::string_view>> read_bytes(std::span<char> buffer);
  // Called after each write: unsent() is smaller.
  void set_on_written(std::function<void()> on_written) { on_written_ = std::move(on_written); }

  Socket& socket() { return tls_ ? tls_->next_layer() : *plain_; }

 private:
  asio::awaitable<std::size_t> read_some(char* data, std::size_t size, asio::error_code& failure);
  void write_next();
  void written(const asio::error_code& failure);

  std::unique_ptr<Socket> plain_;  // exactly one of the two is set
  std::unique_ptr<asio::ssl::stream<Socket>> tls_;
  FrameReader reader_;
  std::string queued_;  // the next write, while writing_ is in progress
  std::string writing_;
  std::function<void()> on_written_;
  bool open_ = true;
  bool closing_ = false;  // close once everything is sent
  bool broken_ = false;   // nothing more can be sent
};

}  // namespace trireme::wire
