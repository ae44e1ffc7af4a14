#include "wire/channel.h"

#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include "wire/tls.h"

namespace trireme::wire {
namespace {

constexpr std::size_t kKeptBuffer = 256;

base::Error lost(const asio::error_code& failure) {
  if (failure == asio::error::eof || failure == asio::error::connection_reset ||
      failure == asio::ssl::error::stream_truncated) {
    return base::error("closed by the peer");
  }
  if (failure == asio::error::operation_aborted || failure == asio::error::bad_descriptor) {
    return base::error("closed locally");
  }
  return base::error("{}", failure.message());
}

}  // namespace

SocketChannel::SocketChannel(Socket socket, std::size_t frame_limit)
    : plain_(std::make_unique<Socket>(std::move(socket))), reader_(frame_limit) {}

SocketChannel::SocketChannel(Socket socket, asio::ssl::context& tls, std::size_t frame_limit)
    : tls_(std::make_unique<asio::ssl::stream<Socket>>(std::move(socket), tls)), reader_(frame_limit) {}

asio::awaitable<base::Result<void>> SocketChannel::tls_handshake(asio::ssl::stream_base::handshake_type side) {
  if (!tls_) co_return base::Result<void>();
  asio::error_code failure;
  co_await tls_->async_handshake(side, asio::redirect_error(asio::use_awaitable, failure));
  if (failure) co_return handshake_error(tls_->native_handle(), failure).wrap("TLS handshake");
  if (!proved(tls_->native_handle())) {
    co_return base::error(base::ErrorCode::kDenied, "TLS handshake: it offered no key of this run");
  }
  co_return base::Result<void>();
}

asio::awaitable<std::size_t> SocketChannel::read_some(char* data, std::size_t size, asio::error_code& failure) {
  auto buffer = asio::buffer(data, size);
  if (tls_) co_return co_await tls_->async_read_some(buffer, asio::redirect_error(asio::use_awaitable, failure));
  co_return co_await plain_->async_read_some(buffer, asio::redirect_error(asio::use_awaitable, failure));
}

asio::awaitable<base::Result<std::string_view>> SocketChannel::read_frame() {
  while (true) {
    auto frame = reader_.next();
    if (!frame) co_return std::move(frame).error();
    if (*frame) co_return **frame;
    auto [data, size] = reader_.prepare();
    asio::error_code failure;
    std::size_t received = co_await read_some(data, size, failure);
    if (failure) co_return lost(failure);
    reader_.commit(received);
  }
}

asio::awaitable<base::Result<Message>> SocketChannel::read_message() {
  auto frame = co_await read_frame();
  if (!frame) co_return std::move(frame).error();
  co_return decode(*frame);
}

void Channel::send(const Message& message) {
  std::string payload = encode(message);
  // The peer would close the connection. Send an error to the requester instead; no other message reaches this size.
  if (const auto* reply = std::get_if<Reply>(&message); reply && payload.size() > kControllerFrameLimit) {
    Reply refusal;
    refusal.id = reply->id;
    refusal.failure =
        fmt::format("the reply has {} bytes, over the limit of {}", payload.size(), kControllerFrameLimit);
    payload = encode(refusal);
  }
  send_payload(payload);
}

void SocketChannel::send_payload(std::string_view payload) {
  if (!open_ || closing_ || broken_) return;
  append_frame(queued_, payload);
  if (writing_.empty()) write_next();
}

void SocketChannel::send_bytes(std::string_view bytes) {
  if (!open_ || closing_ || broken_) return;
  queued_.append(bytes);
  if (writing_.empty()) write_next();
}

asio::awaitable<base::Result<std::string_view>> SocketChannel::read_bytes(std::span<char> buffer) {
  asio::error_code failure;
  while (true) {
    co_await plain_->async_wait(Socket::wait_read, asio::redirect_error(asio::use_awaitable, failure));
    if (failure || !open_) co_return lost(failure ? failure : asio::error::operation_aborted);
    plain_->non_blocking(true, failure);
    const std::size_t size = plain_->read_some(asio::buffer(buffer.data(), buffer.size()), failure);
    if (!failure) co_return std::string_view(buffer.data(), size);
    if (failure != asio::error::would_block) co_return lost(failure);
  }
}

void SocketChannel::write_next() {
  if (queued_.empty()) {
    if (closing_) close();
    return;
  }
  writing_.swap(queued_);
  auto sent = [self = std::static_pointer_cast<SocketChannel>(shared_from_this())](
                  const asio::error_code& failure, std::size_t) { self->written(failure); };
  if (tls_) {
    asio::async_write(*tls_, asio::buffer(writing_), std::move(sent));
  } else {
    asio::async_write(*plain_, asio::buffer(writing_), std::move(sent));
  }
}

void SocketChannel::written(const asio::error_code& failure) {
  writing_.clear();
  // Ten thousand connections are idle most of the time: none may keep the memory of its start message.
  if (writing_.capacity() > kKeptBuffer) writing_.shrink_to_fit();
  if (failure && !closing_) {
    // The peer receives nothing more, but its last messages may still be unread: keep reading to find out why it
    // ended.
    broken_ = true;
    queued_.clear();
  } else if (failure) {
    close();
  } else if (open_) {
    write_next();
  }
  if (on_written_) on_written_();
}

void SocketChannel::close_when_sent() {
  closing_ = true;
  if (writing_.empty() && open_) write_next();
}

void SocketChannel::close() {
  if (!open_) return;
  open_ = false;
  asio::error_code ignored;  // the peer may already have closed the connection
  socket().shutdown(Socket::shutdown_both, ignored);
  socket().close(ignored);
  queued_.clear();
}

}  // namespace trireme::wire
