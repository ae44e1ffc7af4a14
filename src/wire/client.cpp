#include "wire/client.h"

#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>
#include <optional>

#include "wire/endpoint.h"
#include "wire/handshake.h"
#include "wire/tls.h"

namespace trireme::wire {
namespace {

asio::awaitable<base::Result<std::shared_ptr<SocketChannel>>> connect(asio::io_context& io, const Address& address,
                                                                      const std::string& key_name,
                                                                      const std::string& key) {
  auto endpoint = endpoint_of(address);
  if (!endpoint) co_return std::move(endpoint).error();
  Socket socket(io);
  asio::error_code failure;
  co_await socket.async_connect(*endpoint, asio::redirect_error(asio::use_awaitable, failure));
  if (failure) co_return base::Error(failure.message());
  if (address.kind == Address::Kind::kUnix) {
    co_return std::make_shared<SocketChannel>(std::move(socket), kHandshakeFrameLimit);
  }
  auto tls = client_tls(key_name, key);
  if (!tls) co_return std::move(tls).error();
  // The stream holds a reference to OpenSSL's context, so ours may be destroyed here.
  auto channel = std::make_shared<SocketChannel>(std::move(socket), *tls, kHandshakeFrameLimit);
  auto secured = co_await channel->tls_handshake(asio::ssl::stream_base::client);
  if (!secured) co_return std::move(secured).error();
  co_return channel;
}

asio::awaitable<void> ask_once(asio::io_context& io, Address address, std::string secret, Hello hello, Message request,
                               std::optional<base::Result<Reply>>& answer) {
  auto joined = co_await join(io, std::move(address), std::move(secret), std::move(hello));
  if (!joined) {
    answer = std::move(joined).error();
    co_return;
  }
  joined->channel->send(request);
  while (!answer) {
    auto message = co_await joined->channel->read_message();
    if (!message) {
      answer = std::move(message).error().wrap("no reply");
    } else if (auto* reply = std::get_if<Reply>(&*message)) {
      answer = std::move(*reply);
    }
  }
}

}  // namespace

asio::awaitable<base::Result<Joined>> join(asio::io_context& io, Address address, std::string key, Hello hello) {
  auto channel = co_await connect(io, address, hello.key_name, key);
  if (!channel) co_return std::move(channel).error().wrap(fmt::format("could not reach {}", address.text()));
  auto welcome = co_await greet_as_peer(**channel, std::move(key), std::move(hello));
  if (!welcome) co_return std::move(welcome).error().wrap(fmt::format("could not join at {}", address.text()));
  (*channel)->set_frame_limit(kControllerFrameLimit);
  co_return Joined{*std::move(channel), *std::move(welcome)};
}

base::Result<Reply> ask(const std::string& address, const std::string& secret, const std::string& run_id,
                        Message request, std::chrono::milliseconds timeout) {
  TRIREME_ASSIGN(auto where, parse_address(address));
  asio::io_context io;
  Hello hello;
  hello.run_id = run_id;
  hello.role = "client";
  hello.pid = ::getpid();
  std::optional<base::Result<Reply>> answer;
  asio::co_spawn(io, ask_once(io, std::move(where), secret, std::move(hello), std::move(request), answer),
                 asio::detached);
  io.run_for(timeout);
  if (!answer) return base::error("no answer from {} within {} ms", address, timeout.count());
  return *std::move(answer);
}

}  // namespace trireme::wire
