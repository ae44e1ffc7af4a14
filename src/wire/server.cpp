#include "wire/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

#include "base/log.h"
#include "base/network.h"
#include "wire/endpoint.h"

namespace trireme::wire {
namespace {

// Parts of the greeting time, each measured by itself. While this process is suspended, only one of them can pass.
constexpr int kGreetingParts = 10;
// Limits the descriptors that unauthenticated peers can hold, each for at most the greeting time.
constexpr std::size_t kGreetingLimit = 1024;
constexpr int kToldRefusals = 10;
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

// Where a connection comes from, for messages.
std::string origin_of(Socket& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  asio::error_code failure;
  const auto remote = socket.remote_endpoint(failure);
  if (failure) return "a peer that is gone";
  if (remote.protocol().family() != AF_UNIX) return base::ip_text(*remote.data());
  const bool known = ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return known ? fmt::format("pid {}", peer.pid) : "this machine";
}

}  // namespace

base::Result<std::unique_ptr<Server>> Server::listen(asio::io_context& io, Address where, std::string secret,
                                                     ServerHandler& handler, std::chrono::milliseconds greeting_time) {
  std::unique_ptr<Server> server(new Server(io, std::move(where), std::move(secret), handler, greeting_time));
  TRIREME_TRY(server->open(), "could not listen on {}", server->address_.text());
  asio::co_spawn(io, server->accept_loop(), asio::detached);
  return server;
}

Server::Server(asio::io_context& io, Address address, std::string secret, ServerHandler& handler,
               std::chrono::milliseconds greeting_time)
    : io_(io),
      address_(std::move(address)),
      secret_(std::move(secret)),
      handler_(handler),
      greeting_time_(greeting_time),
      acceptor_(io) {}

base::Result<void> Server::open() {
  if (address_.kind == Address::Kind::kTls) {
    TRIREME_ASSIGN(auto tls, server_tls(secret_));
    tls_.emplace(std::move(tls));
  }
  for (const int last = address_.last_port; true; ++address_.port) {
    auto bound = bind();
    if (bound) break;
    if (address_.port >= last) return bound;
  }
  if (address_.kind == Address::Kind::kTls) {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(acceptor_.native_handle(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
      return base::system_error("getsockname", errno);
    }
    // The port is at the same offset for both address families.
    address_.port = ntohs(reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  }
  return {};
}

base::Result<void> Server::bind() {
  TRIREME_ASSIGN(auto endpoint, endpoint_of(address_));
  asio::error_code failure;
  acceptor_.close(failure);  // of an earlier port
  acceptor_.open(endpoint.protocol(), failure);
  // Connections of an earlier run may still occupy a port of the range.
  const bool tcp = address_.kind == Address::Kind::kTls;
  if (!failure && tcp) acceptor_.set_option(asio::socket_base::reuse_address(true), failure);
  if (!failure) acceptor_.bind(endpoint, failure);
  if (!failure) acceptor_.listen(4096, failure);
  if (failure) return base::Error(failure.message());
  return {};
}

void Server::close() {
  asio::error_code ignored;  // closing twice is fine
  acceptor_.close(ignored);
  for (const auto& channel : channels_) channel->close();
}

asio::awaitable<void> Server::accept_loop() {
  while (acceptor_.is_open()) {
    asio::error_code failure;
    Socket socket = co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, failure));
    if (failure == asio::error::operation_aborted) co_return;
    if (failure) {
      // Most likely out of descriptors; others may close some. Giving up would lock out every new worker.
      base::log_warning("could not accept a connection: {}", failure.message());
      asio::steady_timer pause(io_, kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failure));
      continue;
    }
    if (greeting_ >= kGreetingLimit || !from_same_user(socket)) {
      ++refused_peers_;
      continue;
    }
    auto channel = tls_ ? std::make_shared<Channel>(std::move(socket), *tls_, kHandshakeFrameLimit)
                        : std::make_shared<Channel>(std::move(socket), kHandshakeFrameLimit);
    asio::co_spawn(io_, serve(std::move(channel)), asio::detached);
  }
}

bool Server::from_same_user(Socket& socket) const {
  if (address_.kind != Address::Kind::kUnix) return true;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

// A deadline in time that this process was running. A peer cannot be blamed for the time that the server was suspended.
struct Server::GreetingLimit : std::enable_shared_from_this<GreetingLimit> {
  GreetingLimit(asio::io_context& io, std::shared_ptr<Channel> limited) : timer(io), channel(std::move(limited)) {}

  void wait(std::chrono::milliseconds part, int parts) {
    timer.expires_after(part);
    timer.async_wait([self = shared_from_this(), part, parts](const asio::error_code& cancelled) {
      if (cancelled || self->met) return;
      if (parts == 1) return self->channel->close();
      self->wait(part, parts - 1);
    });
  }
  void end() {
    met = true;  // an expiry may be in the queue already
    timer.cancel();
  }

  asio::steady_timer timer;
  std::shared_ptr<Channel> channel;
  bool met = false;
};

asio::awaitable<base::Result<void>> Server::greet(const std::shared_ptr<Channel>& channel) {
  auto limit = std::make_shared<GreetingLimit>(io_, channel);
  limit->wait(greeting_time_ / kGreetingParts, kGreetingParts);
  auto greeted = co_await prove(channel);
  limit->end();
  co_return greeted;
}

asio::awaitable<base::Result<void>> Server::prove(const std::shared_ptr<Channel>& channel) {
  if (tls_) {
    auto secured = co_await channel->tls_handshake(asio::ssl::stream_base::server);
    if (!secured) co_return std::move(secured).error();
  }
  co_return co_await greet_as_controller(*channel, secret_,
                                         [this](const Hello& hello) { return handler_.admit(hello); });
}

void Server::tell_refused(Channel& channel, const base::Error& why) {
  base::log_debug("refused a connection: {}", why.message());
  if (why.code() != base::ErrorCode::kDenied || told_refusals_ == kToldRefusals) return;
  ++told_refusals_;
  handler_.refused(origin_of(channel.socket()), why);
}

asio::awaitable<void> Server::serve(std::shared_ptr<Channel> channel) {
  channels_.insert(channel);
  ++greeting_;
  auto greeted = co_await greet(channel);
  --greeting_;
  if (!greeted) {
    ++refused_peers_;
    tell_refused(*channel, greeted.error());
    channel->close();
    channels_.erase(channel);
    co_return;
  }
  channel->set_frame_limit(kWorkerFrameLimit);
  handler_.opened(channel);
  while (true) {
    auto message = co_await channel->read_message();
    if (!message) {
      channel->close();
      channels_.erase(channel);
      handler_.closed(channel, message.error());
      co_return;
    }
    handler_.received(channel, *std::move(message));
  }
}

}  // namespace trireme::wire
