#include "wire/server.h"

#include <random>

#include "unit/engine/testing.h"
#include "unit/sanitizers.h"
#include "unit/wire/live_server.h"
#include "unit/wire/message_samples.h"

namespace server_test {

using namespace trireme;
using namespace trireme::wire;
using namespace trireme::wire::testing;
using engine::testing::eventually;

namespace {

constexpr std::size_t kChallenge = kFrameHeader + 7 + 1 + 32;

bool says(const base::Error& error, std::string_view text) {
  INFO(error.message());
  CHECK(error.message().find(text) != std::string::npos);
  return error.message().find(text) != std::string::npos;
}

std::vector<Address> both_kinds() { return {unix_address(), loopback_address()}; }

Hello proven_hello(const LiveServer& server, const std::string& challenge) {
  Hello hello = hello_of("run");
  hello.nonce = Bytes{random_bytes(32)};
  const std::string numbers = fmt::format("{}/{}/{}/{}", hello.version, hello.rank, hello.attempt, hello.pid);
  hello.proof = Bytes{prove(server.secret(), {"hello", challenge.substr(8), hello.nonce.data, hello.run_id, hello.role,
                                              numbers, hello.host, hello.key_name})};
  return hello;
}

}  // namespace

TEST_CASE("a peer that knows the secret is served, over Unix and TLS") {
  for (const auto& where : both_kinds()) {
    LiveServer server(where);
    CAPTURE(server.address().text());
    if (where.kind == Address::Kind::kTls) {
      CHECK(server.address().port > 0);
    }
    asio::io_context io;
    auto joined = join_now(io, *parse_address(server.address().text()), server.secret(), hello_of("run"));
    REQUIRE(joined);
    CHECK(joined->welcome.heartbeat_s == 0.25);
    Goodbye goodbye;
    auto answer = finish(io, send_and_read(joined->channel, goodbye));
    REQUIRE_FALSE(answer);
    CHECK(says(answer.error(), "closed by the peer"));
    CHECK(server.refused_peers() == 0);
    CHECK(serves(server));
  }
}

TEST_CASE("a peer that may not join is refused, and the server continues") {
  for (const auto& where : both_kinds()) {
    LiveServer server(where);
    CAPTURE(server.address().text());
    struct Row {
      const char* what;
      std::string secret;
      Hello hello;
    };
    Hello old = hello_of("run");
    old.version = kProtocolVersion + 1;
    std::string nearly = server.secret();
    nearly.back() = static_cast<char>(nearly.back() ^ 1);
    std::uint64_t refused = 0;
    for (const Row& row :
         {Row{"wrong secret", random_bytes(kSecretSize), hello_of("run")},
          Row{"one bit of the secret", nearly, hello_of("run")}, Row{"no secret", "", hello_of("run")},
          Row{"another version", server.secret(), old}, Row{"another run", server.secret(), hello_of("other")}}) {
      CAPTURE(row.what);
      asio::io_context io;
      auto joined = join_now(io, server.address(), row.secret, row.hello);
      REQUIRE_FALSE(joined);
      CHECK(says(joined.error(), "refused"));
      CHECK(says(joined.error(), server.address().text()));
      CHECK(serves(server));
      ++refused;
      CHECK(eventually([&] { return server.refused_peers() == refused; }));
    }
    CHECK(server.opened_count() == static_cast<int>(refused));  // the connections of serves()
  }
}

TEST_CASE("unauthenticated peers are closed and counted, and the server continues") {
  for (const auto& where : both_kinds()) {
    LiveServer server(where);
    CAPTURE(server.address().text());
    const std::string hello = encode(hello_of("run"));
    struct Row {
      const char* what;
      std::string bytes;
    };
    std::string half;
    append_frame(half, hello);
    half.resize(half.size() / 2);
    std::string wrong_kind;
    append_frame(wrong_kind, encode(StopRun{}));
    std::string unproven;
    append_frame(unproven, hello);
    const std::vector<Row> rows = {{"nothing at all", ""},
                                   {"garbage", "GET / HTTP/1.1\r\n\r\n"},
                                   {"half a frame", half},
                                   {"a huge frame", "\xff\xff\xff\xff"},
                                   {"a frame over the limit", std::string("\0\0\x04\x01", 4)},
                                   {"an empty frame", std::string(4, '\0')},
                                   {"another message", wrong_kind},
                                   {"a hello without proof", unproven}};
    std::uint64_t refused = 0;
    for (const auto& row : rows) {
      CAPTURE(row.what);
      {
        RawPeer peer(server.address());
        (void)peer.send(row.bytes);
        peer.finish_sending();
        CHECK(peer.closed_by_other());
      }
      ++refused;
      CHECK(eventually([&] { return server.refused_peers() == refused; }));
      CHECK(serves(server));
    }
    CHECK(server.opened_count() == static_cast<int>(rows.size()));
  }
}

TEST_CASE("the server does not wait for an oversized frame") {
  LiveServer server(unix_address());
  RawPeer peer(server.address());
  CHECK(peer.read(kChallenge).size() == kChallenge);
  // The sender stays open: only the length shows that the frame is too large.
  REQUIRE(peer.send("\x7f\xff\xff\xff"));
  CHECK(peer.closed_by_other());
}

TEST_CASE("a recorded hello is rejected") {
  LiveServer server(unix_address());
  // A listener in between records the messages of a legitimate peer.
  RawPeer first(server.address());
  const std::string challenge = first.read(kChallenge).substr(kFrameHeader);
  Hello hello = proven_hello(server, challenge);
  REQUIRE(first.send_frame(encode(hello)));
  auto welcome = decode(first.read_frame());
  REQUIRE(welcome);
  CHECK(std::holds_alternative<Welcome>(*welcome));

  RawPeer second(server.address());
  REQUIRE(second.read(kChallenge).size() == kChallenge);
  (void)second.send_frame(encode(hello));
  CHECK(second.read_frame().empty());
  // A hello with modified fields is rejected as well.
  RawPeer third(server.address());
  REQUIRE(third.read(kChallenge).size() == kChallenge);
  hello.rank = 1;
  (void)third.send_frame(encode(hello));
  CHECK(third.read_frame().empty());
  CHECK(eventually([&] { return server.refused_peers() == 2; }));
  CHECK(serves(server));
}

TEST_CASE("a silent peer is closed after some seconds") {
  LiveServer local(unix_address());
  LiveServer remote(loopback_address());
  RawPeer silent(local.address());
  RawPeer no_tls(remote.address());
  RawPeer half_way(local.address());
  REQUIRE(half_way.send(std::string("\0\0\0\x20", 4)));
  CHECK(serves(local));
  CHECK(serves(remote));
  CHECK(silent.closed_by_other());
  CHECK(no_tls.closed_by_other());
  CHECK(half_way.closed_by_other());
  CHECK(eventually([&] { return local.refused_peers() == 2 && remote.refused_peers() == 1; }));
  CHECK(serves(local));
  CHECK(serves(remote));
}

TEST_CASE("a peer is not closed because the server was suspended") {
  // Long enough for this test's thread on a busy machine, and shorter than the suspension.
  constexpr std::chrono::milliseconds kGreeting{2000};
  LiveServer server(unix_address(), 0, kGreeting);
  RawPeer peer(server.address());
  const std::string challenge = peer.read(kChallenge).substr(kFrameHeader);
  server.suspend(kGreeting + std::chrono::milliseconds(100));
  REQUIRE(peer.send_frame(encode(proven_hello(server, challenge))));
  auto welcome = decode(peer.read_frame());
  REQUIRE(welcome);
  CHECK(std::holds_alternative<Welcome>(*welcome));
  CHECK(server.refused_peers() == 0);
}

TEST_CASE("invalid data of an authenticated peer only ends its own connection") {
  for (const auto& where : both_kinds()) {
    LiveServer server(where);
    asio::io_context io;
    auto joined = join_now(io, server.address(), server.secret(), hello_of("run"));
    REQUIRE(joined);
    joined->channel->send_payload("garbage");
    auto answer = finish(io, joined->channel->read_message());
    REQUIRE_FALSE(answer);
    CHECK(eventually([&] { return server.goodbyes().size() == 1; }));
    CHECK(server.refused_peers() == 0);
    CHECK(serves(server));
  }
}

TEST_CASE("the first peers that do not prove a key are named, and no more") {
  LiveServer server(unix_address());
  constexpr int kPeers = 14;
  for (int i = 0; i < kPeers; ++i) {
    asio::io_context io;
    CHECK_FALSE(join_now(io, server.address(), random_bytes(kSecretSize), hello_of("run")));
  }
  CHECK(eventually([&] { return server.refused_peers() == kPeers; }));
  const auto refusals = server.refusals();
  CHECK(refusals.size() == 10);
  CHECK(refusals.front() == fmt::format("pid {}: its key is not of this run", ::getpid()));
  // A peer that only ends its connection has claimed nothing.
  RawPeer(server.address()).finish_sending();
  CHECK(eventually([&] { return server.refused_peers() == kPeers + 1; }));
  CHECK(server.refusals().size() == 10);
}

TEST_CASE("large frames are transferred both ways, also in small pieces") {
  struct Row {
    Address where;
    int buffer_size;
    std::size_t size;
  };
  for (const Row& row : {Row{unix_address(), 0, 24 << 20}, Row{loopback_address(), 0, 12 << 20},
                         Row{unix_address(), 1, 3 << 20}, Row{loopback_address(), 4096, 96 << 10}}) {
    CAPTURE(row.buffer_size);
    LiveServer server(row.where, row.buffer_size);
    asio::io_context io;
    auto joined = join_now(io, server.address(), server.secret(), hello_of("run"));
    REQUIRE(joined);
    if (row.buffer_size > 0) {
      joined->channel->socket().set_option(asio::socket_base::send_buffer_size(row.buffer_size));
      joined->channel->socket().set_option(asio::socket_base::receive_buffer_size(row.buffer_size));
    }
    Broadcast broadcast;
    broadcast.id = 9;
    broadcast.data = Bytes{random_bytes(row.size / (tests::kThreadSanitizer ? 8 : 1))};
    auto answer = finish(io, send_and_read(joined->channel, broadcast));
    REQUIRE(answer);
    const auto& reply = std::get<Reply>(*answer);
    CHECK(reply.id == 9);
    CHECK((reply.value.as_bytes() == *broadcast.data));
    CHECK(joined->channel->unsent() == 0);
  }
}

TEST_CASE("many messages keep their order") {
  LiveServer server(unix_address(), 1);
  asio::io_context io;
  auto joined = join_now(io, server.address(), server.secret(), hello_of("run"));
  REQUIRE(joined);
  constexpr int kCount = 5000;
  for (int i = 0; i < kCount; ++i) {
    Heartbeat heartbeat;
    heartbeat.sequence = i;
    joined->channel->send(heartbeat);
  }
  auto in_order = [&]() -> asio::awaitable<int> {
    for (int i = 0; i < kCount; ++i) {
      auto message = co_await joined->channel->read_message();
      if (!message || std::get<Heartbeat>(*message).sequence != i) co_return i;
    }
    co_return kCount;
  };
  CHECK(finish(io, in_order()) == kCount);
}

TEST_CASE("random bytes and frames sent to a live server") {
  LiveServer server(unix_address());
  std::mt19937 random(2026);
  const auto samples = sample_messages();
  constexpr int kPeers = 300;
  for (int i = 0; i < kPeers; ++i) {
    RawPeer peer(server.address());
    if (random() % 2 == 0) (void)peer.read(kChallenge);
    std::string bytes;
    for (std::size_t frames = random() % 4; frames > 0; --frames) {
      std::string payload = encode(samples[random() % samples.size()]);
      for (std::size_t flips = random() % 6; flips > 0; --flips)
        payload[random() % payload.size()] = static_cast<char>(random());
      append_frame(bytes, payload);
    }
    std::string noise = random_bytes(random() % 64);
    bytes.insert(random() % (bytes.size() + 1), noise);
    (void)peer.send(bytes);
    if (random() % 2 == 0) continue;  // closes without a message
    peer.finish_sending();
    CHECK(peer.closed_by_other());
  }
  CHECK(eventually([&] { return server.refused_peers() == kPeers; }));
  CHECK(server.opened_count() == 0);
  CHECK(serves(server));
}

TEST_CASE("listening on an address in use fails") {
  LiveServer server(unix_address());
  asio::io_context io;
  struct Nobody final : ServerHandler {
    base::Result<Welcome> admit(const Hello&) override { return Welcome{}; }
    void opened(const std::shared_ptr<Channel>&) override {}
    void received(const std::shared_ptr<Channel>&, Message) override {}
    void closed(const std::shared_ptr<Channel>&, const base::Error&) override {}
  } nobody;
  auto second = Server::listen(io, server.address(), "secret", nobody);
  REQUIRE_FALSE(second);
  CHECK(says(second.error(), server.address().text()));
  Address named = loopback_address();
  named.host = "localhost";
  CHECK(says(Server::listen(io, named, "secret", nobody).error(), "not an IP address"));
}

}  // namespace server_test
