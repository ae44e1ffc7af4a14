#include "wire/listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/redirect_error.hpp>
#include <asio/socket_base.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

#include "base/log.h"
#include "wire/endpoint.h"

namespace trireme::wire {
namespace {

constexpr auto kAcceptPause = std::chrono::milliseconds(50);

}  // namespace

Listener::Listener(asio::io_context& io, Address address, Accepted accepted)
    : io_(io), address_(std::move(address)), accepted_(std::move(accepted)), acceptor_(io) {}

base::Result<std::shared_ptr<Listener>> Listener::open(asio::io_context& io, Address address, Accepted accepted) {
  std::shared_ptr<Listener> made(new Listener(io, std::move(address), std::move(accepted)));
  TRIREME_TRY(made->open(), "could not listen on {}", made->address_.text());
  asio::co_spawn(io, accept_loop(made), asio::detached);
  return made;
}

base::Result<void> Listener::open() {
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

base::Result<void> Listener::bind() {
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

void Listener::close() {
  asio::error_code ignored;  // closing twice is fine
  acceptor_.close(ignored);
}

asio::awaitable<void> Listener::accept_loop(std::shared_ptr<Listener> self) {
  while (self->acceptor_.is_open()) {
    asio::error_code failure;
    Socket socket = co_await self->acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, failure));
    if (failure == asio::error::operation_aborted) co_return;
    if (failure) {
      // Most likely out of descriptors; others may close some. Giving up would lock out every new worker.
      base::log_warning("could not accept a connection: {}", failure.message());
      asio::steady_timer pause(self->io_, kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failure));
      continue;
    }
    if (self->from_same_user(socket)) {
      self->accepted_(std::move(socket));
    } else {
      ++self->refused_users_;
    }
  }
}

bool Listener::from_same_user(Socket& socket) const {
  if (address_.kind != Address::Kind::kUnix) return true;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace trireme::wire
