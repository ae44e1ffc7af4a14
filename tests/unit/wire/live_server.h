#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>

#include "base/fd.h"
#include "base/hex.h"
#include "wire/client.h"
#include "wire/endpoint.h"
#include "wire/secret.h"
#include "wire/server.h"

// A server on its own thread, and peers that talk to it from the test's thread.

namespace trireme::wire::testing {

// Far longer than any step here takes; a test that reaches it has failed.
inline constexpr std::chrono::seconds kPatience{300};

inline Address unix_address() {
  Address address;
  address.name = "trireme-test-" + base::to_hex(random_bytes(8));
  return address;
}

inline Address loopback_address() {
  Address address;
  address.kind = Address::Kind::kTls;
  address.host = "127.0.0.1";
  return address;
}

inline Hello hello_of(const std::string& run_id) {
  Hello hello;
  hello.run_id = run_id;
  hello.role = "client";
  hello.pid = ::getpid();
  hello.host = "here";
  return hello;
}

// Replies to a broadcast with its data, echoes heartbeats, and closes on a goodbye. The run is named "run".
class LiveServer final : private ServerHandler {
 public:
  explicit LiveServer(Address where, int buffer_size = 0,
                      std::chrono::milliseconds greeting_time = std::chrono::seconds(5))
      : buffer_size_(buffer_size), secret_(random_bytes(kSecretSize)) {
    auto server = Server::listen(io_, std::move(where), secret_, *this, greeting_time);
    REQUIRE_MESSAGE(server, (server ? "" : server.error().message()));
    server_ = *std::move(server);
    thread_ = std::jthread([this] {
      auto work = asio::make_work_guard(io_);
      io_.run();
    });
  }
  ~LiveServer() {
    asio::post(io_, [this] {
      server_->close();
      io_.stop();
    });
    thread_.join();
  }

  const Address& address() const { return server_->address(); }
  const std::string& secret() const { return secret_; }
  std::uint64_t refused_peers() const { return server_->refused_peers(); }
  int opened_count() {
    return on_thread([this] { return opened_; });
  }
  // Like a suspended process: nothing is handled in that time.
  void suspend(std::chrono::milliseconds time) {
    on_thread([time] { std::this_thread::sleep_for(time); });
  }
  // Why peers were refused that did not prove that they belong to the run.
  std::vector<std::string> refusals() {
    return on_thread([this] { return refusals_; });
  }
  std::vector<std::string> goodbyes() {
    return on_thread([this] { return closed_why_; });
  }
  int broadcasts() {
    return on_thread([this] { return broadcasts_; });
  }

 private:
  template <typename Function>
  std::invoke_result_t<Function&> on_thread(Function function) {
    // Shared: the thread may still be leaving the task when the result is available.
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Function&>()>>(std::move(function));
    auto result = task->get_future();
    asio::post(io_, [task] { (*task)(); });
    return result.get();
  }

  base::Result<Welcome> admit(const Hello& hello) override {
    if (hello.run_id != "run") return base::error("it belongs to another run");
    Welcome welcome;
    welcome.heartbeat_s = 0.25;
    return welcome;
  }
  void opened(const std::shared_ptr<Channel>& channel) override {
    ++opened_;
    if (auto* own = dynamic_cast<SocketChannel*>(channel.get()); own && buffer_size_ > 0) {
      own->socket().set_option(asio::socket_base::send_buffer_size(buffer_size_));
      own->socket().set_option(asio::socket_base::receive_buffer_size(buffer_size_));
    }
  }
  void received(const std::shared_ptr<Channel>& channel, Message message) override {
    if (std::holds_alternative<Heartbeat>(message)) channel->send(message);
    if (std::holds_alternative<Goodbye>(message)) channel->close_when_sent();
    if (auto* broadcast = std::get_if<Broadcast>(&message)) {
      ++broadcasts_;
      Reply reply;
      reply.id = broadcast->id;
      if (broadcast->data) reply.value = std::move(*broadcast->data);
      channel->send(reply);
    }
  }
  void closed(const std::shared_ptr<Channel>&, const base::Error& why) override {
    closed_why_.push_back(why.message());
  }
  void refused(const std::string& from, const base::Error& why) override {
    refusals_.push_back(from + ": " + why.message());
  }

  const int buffer_size_;
  const std::string secret_;
  int opened_ = 0;
  int broadcasts_ = 0;
  std::vector<std::string> closed_why_;
  std::vector<std::string> refusals_;
  asio::io_context io_{1};
  std::unique_ptr<Server> server_;
  std::jthread thread_;
};

// Runs one coroutine to completion on this thread.
template <typename T>
T finish(asio::io_context& io, asio::awaitable<T> work) {
  std::optional<T> result;
  auto store = [&]() -> asio::awaitable<void> { result.emplace(co_await std::move(work)); };
  asio::co_spawn(io, store(), asio::detached);
  io.restart();
  io.run_for(kPatience);
  REQUIRE_MESSAGE(result.has_value(), "nothing came");
  return *std::move(result);
}

inline base::Result<Joined> join_now(asio::io_context& io, const Address& address, const std::string& secret,
                                     Hello hello) {
  return finish(io, join(io, address, secret, std::move(hello)));
}

inline asio::awaitable<base::Result<Message>> send_and_read(std::shared_ptr<SocketChannel> channel, Message request) {
  channel->send(request);
  co_return co_await channel->read_message();
}

// Whether a peer with the right secret still gets its reply.
inline bool serves(LiveServer& server) {
  asio::io_context io;
  auto joined = join_now(io, server.address(), server.secret(), hello_of("run"));
  if (!joined) return false;
  Heartbeat heartbeat;
  heartbeat.sequence = 4711;
  auto answer = finish(io, send_and_read(joined->channel, heartbeat));
  return answer && *answer == Message(heartbeat);
}

// A raw socket, as unauthenticated peers use it.
class RawPeer {
 public:
  explicit RawPeer(const Address& address) {
    auto endpoint = endpoint_of(address);
    REQUIRE(endpoint);
    socket_ = base::Fd(::socket(endpoint->protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(socket_.get(), endpoint->data(), static_cast<socklen_t>(endpoint->size())) == 0);
  }
  explicit RawPeer(base::Fd accepted) : socket_(std::move(accepted)) {}

  // False once the other side has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  bool send_frame(std::string_view payload) {
    std::string bytes;
    append_frame(bytes, payload);
    return send(bytes);
  }

  // Fewer bytes if the other side closes before.
  std::string read(std::size_t size) {
    std::string bytes;
    char chunk[4096];
    while (bytes.size() < size) {
      pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      REQUIRE_MESSAGE(::poll(&ready, 1, std::chrono::milliseconds(kPatience).count()) == 1, "nothing came");
      ssize_t count = ::recv(socket_.get(), chunk, std::min(sizeof chunk, size - bytes.size()), 0);
      if (count <= 0) break;
      bytes.append(chunk, static_cast<std::size_t>(count));
    }
    return bytes;
  }
  std::string read_frame() {
    const std::string header = read(kFrameHeader);
    if (header.size() < kFrameHeader) return "";
    auto byte = [&](int i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(header[static_cast<std::size_t>(i)]));
    };
    return read(byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3));
  }
  // Reads the available bytes and waits until the other side closes.
  bool closed_by_other() {
    while (!read(1 << 16).empty()) {
    }
    return true;
  }
  void finish_sending() { ::shutdown(socket_.get(), SHUT_WR); }

 private:
  base::Fd socket_;
};

}  // namespace trireme::wire::testing
