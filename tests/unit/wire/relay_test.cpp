#include "wire/relay.h"

#include <sys/wait.h>

#include <atomic>

#include "unit/engine/testing.h"
#include "unit/sanitizers.h"
#include "unit/wire/live_relay.h"
#include "wire/ticket.h"

namespace relay_test {

using namespace trireme;
using namespace trireme::wire;
using namespace trireme::wire::testing;
using engine::testing::eventually;

namespace {

bool says(const base::Error& error, std::string_view text) {
  INFO(error.message());
  CHECK(error.message().find(text) != std::string::npos);
  return error.message().find(text) != std::string::npos;
}

Hello worker_hello(int rank) {
  Hello hello = hello_of("run");
  hello.role = "worker";
  hello.rank = rank;
  hello.key_name = worker_key_name(0, rank);
  return hello;
}

// As an agent opens it, with the key of rank 0.
Relay::Controller at(const Address& controller, const std::string& secret) {
  return {controller, key_of(secret, worker_key_name(0, 0)), worker_hello(0)};
}
Relay::Controller at(const LiveServer& server) { return at(server.address(), server.secret()); }

struct Worker {
  asio::io_context io{1};
  base::Result<Joined> joined;

  Worker(const LiveServer& server, const Address& address, int rank)
      : joined(join_now(io, address, key_of(server.secret(), worker_key_name(0, rank)), worker_hello(rank))) {}
  Worker(const LiveServer& server, const LiveRelay& relay, int rank) : Worker(server, relay.address(), rank) {}

  base::Result<Message> ask(Message request) { return finish(io, send_and_read(joined->channel, std::move(request))); }
  bool served(std::int64_t sequence = 7) {
    Heartbeat heartbeat;
    heartbeat.sequence = sequence;
    auto answer = ask(heartbeat);
    return answer && *answer == Message(heartbeat);
  }
  base::Result<Message> read() { return finish(io, joined->channel->read_message()); }
};

Broadcast broadcast_of(std::int64_t id, std::size_t size) {
  Broadcast broadcast;
  broadcast.id = id;
  broadcast.data = Bytes{random_bytes(size)};
  return broadcast;
}

// The controller's side of a relay that sends what the test wants.
class RawRelay {
 public:
  explicit RawRelay(const LiveServer& server)
      : joined_(join_now(io_, server.address(), key_of(server.secret(), worker_key_name(0, 0)), hello())) {
    REQUIRE(joined_);
  }

  void send(RelayFrame::Kind kind, std::uint32_t connection, std::string_view data = {}) {
    std::string bytes;
    RelayFrame{kind, connection, data}.append_to(bytes);
    joined_->channel->send_bytes(bytes);
  }
  void send_payload(std::string_view payload) { joined_->channel->send_payload(payload); }
  RelayFrame read() {
    auto frame = finish(io_, joined_->channel->read_frame());
    REQUIRE(frame);
    held_ = *frame;
    return *RelayFrame::parse(held_);
  }
  bool closed() {
    while (finish(io_, joined_->channel->read_frame())) {
    }
    return true;
  }

 private:
  static Hello hello() {
    Hello made = worker_hello(0);
    made.role = kRelayRole;
    return made;
  }

  asio::io_context io_{1};
  base::Result<Joined> joined_;
  std::string held_;
};

}  // namespace

TEST_CASE("frames of a relay are parsed as they were written") {
  std::string bytes;
  RelayFrame{RelayFrame::Kind::kData, 0x01020304, "abc"}.append_to(bytes);
  CHECK(bytes == std::string("\0\0\0\x08\x02\x01\x02\x03\x04"
                             "abc",
                             12));
  const auto frame = RelayFrame::parse(std::string_view(bytes).substr(kFrameHeader));
  REQUIRE(frame);
  CHECK(frame->kind == RelayFrame::Kind::kData);
  CHECK(frame->connection == 0x01020304);
  CHECK(frame->data == "abc");
  for (const std::string& wrong :
       {std::string(), std::string("\x02\0\0\0", 4), std::string("\0\0\0\0\1", 5), std::string("\5\0\0\0\1", 5)}) {
    CHECK_FALSE(RelayFrame::parse(wrong));
  }
  CHECK(*decode_credit(encode_credit(0xfffefdfc)) == 0xfffefdfc);
  CHECK_FALSE(decode_credit("abc"));
}

TEST_CASE("workers prove their own keys through a relay, over one connection") {
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  Worker first(server, relay, 0);
  Worker second(server, relay, 1);
  REQUIRE(first.joined);
  REQUIRE(second.joined);
  CHECK(first.joined->welcome.heartbeat_s == 0.25);
  CHECK(first.served(1));
  CHECK(second.served(2));
  CHECK(server.opened_count() == 2);  // the relay itself is no peer
  CHECK(server.refused_peers() == 0);
}

TEST_CASE("a worker that may not join is refused through a relay, and the others continue") {
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  Worker healthy(server, relay, 0);
  struct Row {
    const char* what;
    std::string key;
    Hello hello;
  };
  Hello old = worker_hello(1);
  old.version = kProtocolVersion + 1;
  Hello other_run = worker_hello(1);
  other_run.run_id = "other";
  Hello nested = worker_hello(1);
  nested.role = kRelayRole;
  const std::string key = key_of(server.secret(), worker_key_name(0, 1));
  std::uint64_t refused = 0;
  for (const Row& row :
       {Row{"no key", random_bytes(kSecretSize), worker_hello(1)},
        Row{"the key of another worker", key_of(server.secret(), worker_key_name(0, 2)), worker_hello(1)},
        Row{"the key of another attempt", key_of(server.secret(), worker_key_name(1, 1)), worker_hello(1)},
        Row{"another version", key, old}, Row{"another run", key, other_run}, Row{"a relay in a relay", key, nested}}) {
    CAPTURE(row.what);
    asio::io_context io;
    auto joined = join_now(io, relay.address(), row.key, row.hello);
    REQUIRE_FALSE(joined);
    CHECK(says(joined.error(), "refused"));
    ++refused;
    CHECK(eventually([&] { return server.refused_peers() == refused; }));
    CHECK(healthy.served());
  }
  CHECK(server.opened_count() == 1);
  // Those without the key that they name are told to the user, with the address of their node.
  CHECK(server.refusals() == std::vector<std::string>(3, "127.0.0.1: its key is not of this run"));
}

TEST_CASE("invalid data behind a relay only ends its own connection") {
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  Worker healthy(server, relay, 0);
  std::string half;
  append_frame(half, encode(worker_hello(1)));
  half.resize(half.size() / 2);
  RawPeer silent(relay.address());
  RawPeer half_way(relay.address());
  REQUIRE(half_way.send(half));
  std::string wrong_kind;
  append_frame(wrong_kind, encode(StopRun{}));
  std::uint64_t refused = 0;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\xff\xff\xff\xff"), std::string(4, '\0'), wrong_kind}) {
    RawPeer peer(relay.address());
    (void)peer.send(bytes);
    CHECK(peer.closed_by_other());
    ++refused;
    CHECK(eventually([&] { return server.refused_peers() >= refused; }));
    CHECK(healthy.served());
  }
  // These stay open until their time is over.
  CHECK(silent.closed_by_other());
  CHECK(half_way.closed_by_other());
  CHECK(eventually([&] { return server.refused_peers() == refused + 2; }));
  // After the greeting as well.
  Worker broken(server, relay, 1);
  broken.joined->channel->send_payload("garbage");
  CHECK_FALSE(broken.read());
  CHECK(eventually([&] { return server.goodbyes().size() == 1; }));
  CHECK(healthy.served());
}

TEST_CASE("a process of another user cannot connect to a relay") {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0) return;  // only root can become another user
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  const auto endpoint = endpoint_of(relay.address());
  REQUIRE(endpoint);
  const pid_t other = ::fork();
  if (other == 0) {
    const int made = ::socket(AF_UNIX, SOCK_STREAM, 0);
    char byte = 0;
    const bool closed = ::setuid(kNobody) == 0 &&
                        ::connect(made, endpoint->data(), static_cast<socklen_t>(endpoint->size())) == 0 &&
                        ::recv(made, &byte, 1, 0) <= 0;
    ::_exit(closed ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(other, &status, 0) == other);
  CHECK(status == 0);
  CHECK(Worker(server, relay, 0).served());
}

TEST_CASE("the end of one connection is seen at once on the other side, and the others continue") {
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  Worker healthy(server, relay, 0);
  {
    Worker dying(server, relay, 1);
    CHECK(dying.served());
    dying.joined->channel->close();
  }
  CHECK(eventually([&] { return server.goodbyes() == std::vector<std::string>{"closed by the peer"}; }));
  Worker leaving(server, relay, 2);
  auto end = leaving.ask(Goodbye{});  // the server closes
  REQUIRE_FALSE(end);
  CHECK(says(end.error(), "closed by the peer"));
  CHECK(eventually([&] { return server.goodbyes().size() == 2; }));
  CHECK(healthy.served());
}

TEST_CASE("the last words of a worker arrive before its end") {
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  Worker worker(server, relay, 0);
  const auto last = broadcast_of(1, 300'000);
  worker.joined->channel->send(last);
  worker.joined->channel->close_when_sent();
  worker.io.restart();
  worker.io.run();
  CHECK(eventually([&] { return server.goodbyes().size() == 1; }));
  CHECK(server.broadcasts() == 1);
}

TEST_CASE("without the controller, workers end, and the relay does not listen any more") {
  auto server = std::make_unique<LiveServer>(loopback_address());
  LiveRelay relay(at(*server));
  Worker worker(*server, relay, 0);
  const std::string key = key_of(server->secret(), worker_key_name(0, 1));
  server.reset();
  auto end = worker.read();
  REQUIRE_FALSE(end);
  CHECK(says(end.error(), "closed by the peer"));
  CHECK(eventually([&] { return relay.ended(); }));
  asio::io_context io;
  CHECK_FALSE(join_now(io, relay.address(), key, worker_hello(1)));
}

TEST_CASE("without the relay, the controller sees the end of all its workers") {
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  Worker first(server, relay, 0);
  Worker second(server, relay, 1);
  relay.close();
  CHECK(eventually([&] { return server.goodbyes() == std::vector<std::string>(2, "closed by the peer"); }));
  CHECK_FALSE(first.read());
  CHECK(serves(server));
}

TEST_CASE("workers learn why a relay cannot reach the controller") {
  SUBCASE("nobody listens") {
    Address closed = loopback_address();
    closed.port = 1;
    LiveRelay relay(at(closed, random_bytes(kSecretSize)));
    asio::io_context io;
    auto joined = join_now(io, relay.address(), random_bytes(kSecretSize), worker_hello(0));
    REQUIRE_FALSE(joined);
    CHECK(says(joined.error(), "could not reach tls://127.0.0.1:1: Connection refused"));
  }
  SUBCASE("its key is of another run") {
    LiveServer server(loopback_address());
    LiveRelay relay(at(server.address(), random_bytes(kSecretSize)));
    Worker worker(server, relay.address(), 0);
    REQUIRE_FALSE(worker.joined);
    CHECK(says(worker.joined.error(), "the controller refused the key of this process"));
    Worker later(server, relay.address(), 1);
    REQUIRE_FALSE(later.joined);
    CHECK(says(later.joined.error(), "the controller refused the key of this process"));
  }
}

TEST_CASE("large messages pass in pieces, and do not block the others") {
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  Worker large(server, relay, 0);
  Worker other(server, relay, 1);
  const std::size_t size = (std::size_t{24} << 20) / (tests::kThreadSanitizer ? 8 : 1);
  const auto sent = broadcast_of(3, size);
  // The worker sends, but it does not read: the answer stays in the controller, but for a window.
  large.joined->channel->send(sent);
  large.io.restart();
  while (large.joined->channel->unsent() > 0) {
    large.io.run_one();
    CHECK(other.served());
  }
  CHECK(eventually([&] { return server.broadcasts() == 1; }));
  for (int i = 0; i < 50; ++i) CHECK(other.served(i));
  auto answer = large.read();
  REQUIRE(answer);
  const auto& reply = std::get<Reply>(*answer);
  CHECK(reply.id == 3);
  CHECK((reply.value.as_bytes() == *sent.data));
  CHECK(large.served());
}

TEST_CASE("a worker that never reads does not hold up the end of the others, nor its own") {
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  auto stuck = std::make_unique<Worker>(server, relay, 0);
  stuck->joined->channel->send(broadcast_of(1, 8 << 20));
  stuck->io.restart();
  while (stuck->joined->channel->unsent() > 0) stuck->io.run_one();
  CHECK(eventually([&] { return server.broadcasts() == 1; }));
  stuck.reset();
  CHECK(eventually([&] { return server.goodbyes().size() == 1; }));
  Worker other(server, relay, 1);
  CHECK(other.served());
}

TEST_CASE("messages of many workers keep their order") {
  constexpr int kWorkers = 8;
  constexpr int kMessages = 2000;
  LiveServer server(loopback_address());
  LiveRelay relay(at(server));
  std::vector<std::unique_ptr<Worker>> workers;
  for (int rank = 0; rank < kWorkers; ++rank) workers.push_back(std::make_unique<Worker>(server, relay, rank));
  for (int i = 0; i < kMessages; ++i) {
    for (auto& worker : workers) {
      Heartbeat heartbeat;
      heartbeat.sequence = i;
      worker->joined->channel->send(heartbeat);
    }
  }
  for (auto& worker : workers) {
    auto in_order = [&]() -> asio::awaitable<int> {
      for (int i = 0; i < kMessages; ++i) {
        auto message = co_await worker->joined->channel->read_message();
        if (!message || std::get<Heartbeat>(*message).sequence != i) co_return i;
      }
      co_return kMessages;
    };
    CHECK(finish(worker->io, in_order()) == kMessages);
  }
}

TEST_CASE("a relay that breaks the rules is cut off, and the controller continues") {
  LiveServer server(loopback_address());
  SUBCASE("unknown kind") {
    RawRelay relay(server);
    relay.send_payload(std::string("\x09\0\0\0\1", 5));
    CHECK(relay.closed());
  }
  SUBCASE("too short") {
    RawRelay relay(server);
    relay.send_payload("ab");
    CHECK(relay.closed());
  }
  SUBCASE("the same connection twice") {
    RawRelay relay(server);
    relay.send(RelayFrame::Kind::kOpen, 1);
    relay.send(RelayFrame::Kind::kOpen, 1);
    CHECK(relay.closed());
  }
  SUBCASE("a frame over the limit") {
    RawRelay relay(server);
    relay.send(RelayFrame::Kind::kOpen, 1);
    relay.send(RelayFrame::Kind::kData, 1, std::string(kRelayPiece + 1, 'x'));
    CHECK(relay.closed());
  }
  SUBCASE("a wrong credit") {
    RawRelay relay(server);
    relay.send(RelayFrame::Kind::kOpen, 1);
    relay.send(RelayFrame::Kind::kCredit, 1, "abc");
    CHECK(relay.closed());
  }
  CHECK(server.opened_count() == 0);
  CHECK(serves(server));
}

TEST_CASE("a relay cannot have any number of silent connections") {
  LiveServer server(loopback_address());
  RawRelay relay(server);
  constexpr std::uint32_t kMost = 256;
  for (std::uint32_t i = 1; i <= kMost + 1; ++i) relay.send(RelayFrame::Kind::kOpen, i);
  bool refused = false;
  for (std::uint32_t i = 1; i <= kMost + 1; ++i) {
    const auto frame = relay.read();
    if (frame.kind != RelayFrame::Kind::kClose) continue;
    CHECK(frame.connection == kMost + 1);
    refused = true;
  }
  CHECK(refused);
  CHECK(serves(server));
}

TEST_CASE("data for a connection that is closed is ignored") {
  LiveServer server(loopback_address());
  RawRelay relay(server);
  relay.send(RelayFrame::Kind::kData, 5, "late");
  relay.send(RelayFrame::Kind::kClose, 5);
  relay.send(RelayFrame::Kind::kOpen, 6);
  const auto frame = relay.read();
  CHECK(frame.kind == RelayFrame::Kind::kData);
  CHECK(frame.connection == 6);
  CHECK(frame.data.substr(kFrameHeader, 7) == "trireme");
}

}  // namespace relay_test
