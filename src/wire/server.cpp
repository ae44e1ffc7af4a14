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

// Limits the descriptors that unauthenticated peers can hold, each for at most the greeting time.
constexpr std::size_t kGreetingLimit = 1024;
constexpr int kToldRefusals = 10;

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
  std::unique_ptr<Server> server(new Server(io, std::move(secret), handler, greeting_time));
  if (where.kind == Address::Kind::kTls) {
    TRIREME_ASSIGN(auto tls, server_tls(server->secret_));
    server->tls_.emplace(std::move(tls));
  }
  const auto accepted = [made = server.get()](Socket socket) { made->accept(std::move(socket)); };
  TRIREME_ASSIGN(server->listener_, Listener::open(io, std::move(where), accepted));
  return server;
}

Server::Server(asio::io_context& io, std::string secret, ServerHandler& handler,
               std::chrono::milliseconds greeting_time)
    : io_(io), secret_(std::move(secret)), handler_(handler), greeting_time_(greeting_time) {}

Server::~Server() {
  if (listener_) listener_->close();
  for (const auto& link : links_) link->abandon();
}

void Server::close() {
  listener_->close();
  for (const auto& link : links_) link->flush();
  for (const auto& channel : channels_) channel->close();
}

void Server::accept(Socket socket) {
  if (greeting_ >= kGreetingLimit) {
    ++refused_peers_;
    return;
  }
  auto channel = tls_ ? std::make_shared<SocketChannel>(std::move(socket), *tls_, kHandshakeFrameLimit)
                      : std::make_shared<SocketChannel>(std::move(socket), kHandshakeFrameLimit);
  asio::co_spawn(io_, serve(std::move(channel)), asio::detached);
}

// A deadline in time that this process was running. A peer cannot be blamed for the time that the server was suspended.
struct Server::GreetingLimit : std::enable_shared_from_this<GreetingLimit> {
  GreetingLimit(asio::io_context& io, std::shared_ptr<SocketChannel> limited)
      : timer(io), channel(std::move(limited)) {}

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
  std::shared_ptr<SocketChannel> channel;
  bool met = false;
};

asio::awaitable<base::Result<void>> Server::greet(const std::shared_ptr<SocketChannel>& channel) {
  auto limit = std::make_shared<GreetingLimit>(io_, channel);
  limit->wait(greeting_time_ / kGreetingParts, kGreetingParts);
  auto greeted = co_await prove(channel);
  limit->end();
  co_return greeted;
}

asio::awaitable<base::Result<void>> Server::prove(const std::shared_ptr<SocketChannel>& channel) {
  if (tls_) {
    auto secured = co_await channel->tls_handshake(asio::ssl::stream_base::server);
    if (!secured) co_return std::move(secured).error();
  }
  co_return co_await greet_as_controller(*channel, secret_,
                                         [this](const Hello& hello) { return handler_.admit(hello); });
}

void Server::tell_refused(SocketChannel& channel, const base::Error& why) {
  base::log_debug("refused a connection: {}", why.message());
  if (why.code() != base::ErrorCode::kDenied || told_refusals_ == kToldRefusals) return;
  ++told_refusals_;
  handler_.refused(origin_of(channel.socket()), why);
}

asio::awaitable<void> Server::serve(std::shared_ptr<SocketChannel> channel) {
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
  if (channel->peer().role == kRelayRole) {
    co_await serve_relay(channel);
  } else {
    co_await serve_peer(channel);
  }
}

asio::awaitable<void> Server::serve_peer(const std::shared_ptr<SocketChannel>& channel) {
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

asio::awaitable<void> Server::serve_relay(const std::shared_ptr<SocketChannel>& channel) {
  const auto refused = [this, channel](const base::Error& why) {
    ++refused_peers_;
    tell_refused(*channel, why);
  };
  const auto link =
      std::make_shared<RelayLink>(io_, channel, RelayLink::Greets{secret_, greeting_time_, refused}, handler_);
  links_.insert(link);
  co_await link->run();
  channel->close();
  channels_.erase(channel);
  links_.erase(link);
}

}  // namespace trireme::wire
