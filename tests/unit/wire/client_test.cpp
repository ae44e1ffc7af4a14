#include "wire/client.h"

#include "unit/wire/live_server.h"

namespace client_test {

using namespace trireme;
using namespace trireme::wire;
using namespace trireme::wire::testing;

namespace {

// A listener in place of a controller: one connection, served by the test.
class Impostor {
 public:
  explicit Impostor(std::function<void(RawPeer&)> behave) : address_(unix_address()) {
    auto endpoint = endpoint_of(address_);
    listener_ = base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listener_.get(), endpoint->data(), static_cast<socklen_t>(endpoint->size())) == 0);
    REQUIRE(::listen(listener_.get(), 1) == 0);
    thread_ = std::jthread([this, behave = std::move(behave)] {
      RawPeer peer(base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      behave(peer);
    });
  }
  const Address& address() const { return address_; }

 private:
  Address address_;
  base::Fd listener_;
  std::jthread thread_;
};

std::string join_error(const Address& address) {
  asio::io_context io;
  auto joined = join_now(io, address, "secret", hello_of("run"));
  REQUIRE_FALSE(joined);
  return joined.error().message();
}

std::string challenge(int version) {
  return fmt::format("trireme{}{}", static_cast<char>(version), std::string(32, 'n'));
}

}  // namespace

TEST_CASE("a fake controller is rejected") {
  struct Row {
    const char* what;
    std::function<void(RawPeer&)> behave;
    std::string says;
  };
  for (const Row& row :
       {Row{"closes", [](RawPeer&) {}, "no challenge: closed by the peer"},
        Row{"something else", [](RawPeer& peer) { (void)peer.send_frame("SSH-2.0"); }, "not a trireme controller"},
        Row{"nearly", [](RawPeer& peer) { (void)peer.send_frame(challenge(kProtocolVersion) + "x"); },
            "not a trireme controller"},
        Row{"a huge frame", [](RawPeer& peer) { (void)peer.send("\xff\xff\xff\xff"); }, "over the limit"},
        Row{"another version", [](RawPeer& peer) { (void)peer.send_frame(challenge(kProtocolVersion + 1)); },
            fmt::format("uses protocol version {}, this process {}; install the same trireme on both",
                        kProtocolVersion + 1, kProtocolVersion)},
        Row{"another message",
            [](RawPeer& peer) {
              (void)peer.send_frame(challenge(kProtocolVersion));
              (void)peer.read_frame();
              (void)peer.send_frame(encode(Goodbye{}));
              (void)peer.closed_by_other();
            },
            "expected a welcome, got Goodbye"},
        Row{"no proof",
            [](RawPeer& peer) {
              (void)peer.send_frame(challenge(kProtocolVersion));
              (void)peer.read_frame();
              (void)peer.send_frame(encode(Welcome{}));
              (void)peer.closed_by_other();
            },
            "the controller does not know the secret of this run"}}) {
    CAPTURE(row.what);
    Impostor impostor(row.behave);
    const std::string error = join_error(impostor.address());
    CAPTURE(error);
    CHECK(error.find(row.says) != std::string::npos);
    CHECK(error.find(impostor.address().text()) != std::string::npos);
  }
}

TEST_CASE("the secret is never sent") {
  std::string seen;
  {
    Impostor impostor([&](RawPeer& peer) {
      (void)peer.send_frame(challenge(kProtocolVersion));
      seen = peer.read_frame();
    });
    (void)join_error(impostor.address());
  }
  auto hello = decode(seen);
  REQUIRE(hello);
  CHECK(std::get<Hello>(*hello).run_id == "run");
  CHECK(seen.find("secret") == std::string::npos);
}

TEST_CASE("no listener") {
  CHECK(join_error(unix_address()).find("could not reach unix:@trireme-test-") != std::string::npos);
  Address closed = loopback_address();
  {
    LiveServer server(loopback_address());
    closed = server.address();
  }
  CHECK(join_error(closed).find("could not reach tls://127.0.0.1:") != std::string::npos);
}

TEST_CASE("one request and its reply") {
  LiveServer server(unix_address());
  Broadcast question;
  question.data = Bytes{"data"};
  auto reply = ask(server.address().text(), server.secret(), "run", question, kPatience);
  REQUIRE(reply);
  CHECK(reply->value == Value(Bytes{"data"}));

  CHECK(ask("nowhere", "", "run", question, kPatience).error().message().find("nowhere") != std::string::npos);
  auto refused = ask(server.address().text(), "wrong", "run", question, kPatience);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("refused") != std::string::npos);
  // The server closes without a reply.
  auto closed = ask(server.address().text(), server.secret(), "run", Goodbye{}, kPatience);
  REQUIRE_FALSE(closed);
  CHECK(closed.error().message() == "no reply: closed by the peer");
  // The server never replies.
  auto late = ask(server.address().text(), server.secret(), "run", Entered{}, std::chrono::milliseconds(50));
  REQUIRE_FALSE(late);
  CHECK(late.error().message().find("within 50 ms") != std::string::npos);
}

}  // namespace client_test
