#include "agent/worker_relays.h"

#include "unit/engine/testing.h"
#include "unit/wire/live_server.h"
#include "worker/session.h"

namespace worker_relays_test {

using namespace trireme;
using namespace trireme::agent;
using namespace trireme::wire::testing;
using engine::testing::eventually;

namespace {

wire::Ticket ticket_of(const LiveServer& server, int rank) {
  const std::string name = wire::worker_key_name(0, rank);
  return {server.address(), wire::key_of(server.secret(), name), "run", name};
}

wire::Hello hello_for(const wire::Ticket& ticket, int rank) {
  wire::Hello hello = hello_of(ticket.run_id);
  hello.role = "worker";
  hello.rank = rank;
  hello.key_name = ticket.key_name;
  return hello;
}

bool joins(const WorkerRelays&, const wire::Address& relay, const wire::Ticket& ticket, int rank) {
  asio::io_context io;
  auto joined = join_now(io, relay, ticket.key, hello_for(ticket, rank));
  if (!joined) return false;
  wire::Heartbeat heartbeat;
  heartbeat.sequence = 3;
  auto answer = finish(io, send_and_read(joined->channel, heartbeat));
  return answer && *answer == wire::Message(heartbeat);
}

// Admits workers, and is silent.
class SilentController final : private wire::ServerHandler {
 public:
  explicit SilentController(double lease_s) : lease_s_(lease_s) {
    auto server = wire::Server::listen(io_, loopback_address(), secret_, *this);
    REQUIRE(server);
    server_ = *std::move(server);
    thread_ = std::jthread([this] {
      auto work = asio::make_work_guard(io_);
      io_.run();
    });
  }
  ~SilentController() {
    asio::post(io_, [this] {
      server_->close();
      io_.stop();
    });
    thread_.join();
  }
  wire::Ticket ticket() const {
    const std::string name = wire::worker_key_name(0, 0);
    return {server_->address(), wire::key_of(secret_, name), "run", name};
  }

 private:
  base::Result<wire::Welcome> admit(const wire::Hello&) override {
    wire::Welcome welcome;
    welcome.heartbeat_s = 0.01;
    welcome.lease_s = lease_s_;
    return welcome;
  }
  void opened(const std::shared_ptr<wire::Channel>&) override {}
  void received(const std::shared_ptr<wire::Channel>&, wire::Message) override {}
  void closed(const std::shared_ptr<wire::Channel>&, const base::Error&) override {}

  const double lease_s_;
  const std::string secret_ = wire::random_bytes(wire::kSecretSize);
  asio::io_context io_{1};
  std::unique_ptr<wire::Server> server_;
  std::jthread thread_;
};

}  // namespace

TEST_CASE("the workers of a run share a relay, and those of another run have their own") {
  LiveServer server(loopback_address());
  WorkerRelays relays(1);
  const auto first = ticket_of(server, 0);
  const auto second = ticket_of(server, 1);
  const auto address = relays.address_for(first);
  REQUIRE(address);
  CHECK(address->kind == wire::Address::Kind::kUnix);
  CHECK(relays.address_for(second)->name == address->name);
  CHECK(joins(relays, *address, first, 0));
  CHECK(joins(relays, *address, second, 1));
  auto other = ticket_of(server, 0);
  other.run_id = "other";
  CHECK(relays.address_for(other)->name != address->name);
}

TEST_CASE("after the end of the controller, the next worker of the run gets a new relay") {
  auto server = std::make_unique<LiveServer>(loopback_address());
  WorkerRelays relays(1);
  auto ticket = ticket_of(*server, 0);
  const auto before = relays.address_for(ticket);
  REQUIRE(before);
  CHECK(joins(relays, *before, ticket, 0));
  server = std::make_unique<LiveServer>(loopback_address());
  ticket = ticket_of(*server, 0);
  CHECK(eventually([&] { return relays.address_for(ticket)->name != before->name; }));
  CHECK(joins(relays, *relays.address_for(ticket), ticket, 0));
}

TEST_CASE("a relay that could not reach its controller is replaced") {
  LiveServer server(loopback_address());
  WorkerRelays relays(1);
  auto wrong = ticket_of(server, 0);
  wrong.key = wire::random_bytes(wire::kSecretSize);
  const auto failed = relays.address_for(wrong);
  REQUIRE(failed);
  const auto ticket = ticket_of(server, 1);
  asio::io_context io;
  const auto joined = join_now(io, *failed, ticket.key, hello_for(ticket, 1));
  REQUIRE_FALSE(joined);
  CHECK(joined.error().message().find("the controller refused the key") != std::string::npos);
  CHECK(joins(relays, *relays.address_for(ticket), ticket, 1));
}

TEST_CASE("a worker whose controller is silent ends after its lease, although its agent is there") {
  SilentController controller(0.1);
  WorkerRelays relays(1);
  worker::Ticket ticket{controller.ticket()};
  ticket.address = *relays.address_for(ticket);
  std::promise<std::string> lost;
  auto session = worker::Session::join(ticket, [&](const std::string& why) { lost.set_value(why); });
  REQUIRE(session);
  CHECK(lost.get_future().get().find("no message for") != std::string::npos);
}

}  // namespace worker_relays_test
