#include "wire/channel.h"

#include "unit/wire/live_server.h"

namespace channel_test {

using namespace trireme;
using namespace trireme::wire;
using namespace trireme::wire::testing;

namespace {

// A channel, and a socket at its other end that the test controls.
struct Pair {
  asio::io_context io{1};
  std::shared_ptr<SocketChannel> channel;
  std::optional<RawPeer> peer;

  Pair() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    Socket socket(io);
    socket.assign(asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
    channel = std::make_shared<SocketChannel>(std::move(socket), kWorkerFrameLimit);
    peer.emplace(base::Fd(ends[1]));
  }
};

}  // namespace

TEST_CASE("the last messages of a closed peer are read") {
  Pair pair;
  Failed failed;
  failed.message = "boom";
  REQUIRE(pair.peer->send_frame(encode(failed)));
  pair.peer.reset();
  // The peer no longer receives this, but it must not discard the messages received before.
  pair.channel->send(Heartbeat{});
  pair.io.poll();
  pair.channel->send(Heartbeat{});
  CHECK(pair.channel->unsent() == 0);
  auto words = finish(pair.io, pair.channel->read_message());
  REQUIRE(words);
  CHECK(*words == Message(failed));
  auto end = finish(pair.io, pair.channel->read_message());
  REQUIRE_FALSE(end);
  CHECK(end.error().message() == "closed by the peer");
}

TEST_CASE("close_when_sent() closes when all is sent or the peer has closed") {
  Pair pair;
  SUBCASE("sent") {
    const std::string large(4 << 20, 'x');
    pair.channel->send_payload(large);
    pair.channel->close_when_sent();
    pair.channel->send_payload("too late");
    CHECK(pair.channel->open());
    std::jthread reader([&] {
      CHECK((pair.peer->read_frame() == large));
      CHECK(pair.peer->closed_by_other());
    });
    pair.io.run();
  }
  SUBCASE("nothing to send") { pair.channel->close_when_sent(); }
  SUBCASE("peer closed") {
    pair.peer.reset();
    pair.channel->send_payload("x");
    pair.channel->close_when_sent();
    pair.io.run();
  }
  CHECK_FALSE(pair.channel->open());
}

TEST_CASE("a local close ends a read, and later messages are dropped") {
  Pair pair;
  asio::post(pair.io, [&] { pair.channel->close(); });
  auto read = finish(pair.io, pair.channel->read_message());
  REQUIRE_FALSE(read);
  CHECK(read.error().message() == "closed locally");
  pair.channel->send(Heartbeat{});
  pair.channel->close();
  CHECK(pair.channel->unsent() == 0);
  CHECK(pair.peer->closed_by_other());
}

}  // namespace channel_test
