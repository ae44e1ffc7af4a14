// Misbehaving peers during a run.

#include <doctest/doctest.h>

#include <atomic>
#include <random>

#include "control/controller.h"
#include "unit/control/thread_run.h"
#include "unit/fake_clock.h"
#include "unit/wire/live_relay.h"
#include "unit/wire/message_samples.h"
#include "wire/relay.h"

namespace controller_peers_test {

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;
using engine::testing::eventually;
using wire::testing::finish;
using wire::testing::join_now;
using wire::testing::RawPeer;
using worker::Session;

namespace {

using Status = std::optional<engine::ExitStatus>;

// Joins without a session, so that the test controls what is sent and when.
base::Result<wire::Joined> join_raw(asio::io_context& io, const RankProcess& process) {
  TRIREME_ASSIGN(auto ticket, worker::parse_ticket(process.ticket));
  wire::Hello hello;
  hello.run_id = ticket.run_id;
  hello.key_name = ticket.key_name;
  hello.rank = ticket.rank;
  hello.attempt = ticket.attempt;
  hello.host = "here";
  return join_now(io, ticket.address, ticket.key, hello);
}

void until_killed(const RankProcess& process) {
  while (!process.killed.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Whether the controller closes the connection after this message.
ThreadEngine::Body sends(std::vector<wire::Message> messages) {
  return [messages = std::move(messages)](const RankProcess& process) -> engine::ExitStatus {
    asio::io_context io;
    auto joined = join_raw(io, process);
    if (!joined) return kFailedExit;
    auto talk = [&]() -> asio::awaitable<bool> {
      // The start message first: before it nothing is expected from a worker.
      auto start = co_await joined->channel->read_message();
      if (!start || !std::holds_alternative<wire::Start>(*start)) co_return false;
      for (const auto& message : messages) joined->channel->send(message);
      while (co_await joined->channel->read_message()) {
      }
      co_return true;
    };
    finish(io, talk());
    until_killed(process);
    return kFailedExit;
  };
}

}  // namespace

TEST_CASE("unauthenticated peers do not disturb a run") {
  std::atomic<bool> enough = false;
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  for (int i = 0;; ++i) {
                    // Rank 0 decides when to stop: both must make the same number of broadcasts.
                    auto last = session.broadcast(session.start().world_rank == 0
                                                      ? std::optional<std::string>(enough ? "yes" : "no")
                                                      : std::nullopt);
                    if (!last || !session.report({{"i", i}})) return kFailedExit;
                    if (*last == "yes") break;
                  }
                  return std::nullopt;
                }));
  run.start();
  REQUIRE(run.wait_for("training_started"));
  std::mt19937 random(3);
  const auto samples = wire::testing::sample_messages();
  constexpr int kPeers = 100;
  for (int i = 0; i < kPeers; ++i) {
    RawPeer peer(run.controller().address());
    std::string bytes;
    wire::append_frame(bytes, wire::encode(samples[random() % samples.size()]));
    bytes[random() % bytes.size()] = static_cast<char>(random());
    (void)peer.send(random() % 3 == 0 ? wire::random_bytes(random() % 100) : bytes);
    peer.finish_sending();
    CHECK(peer.closed_by_other());
  }
  CHECK(eventually([&] { return run.controller().refused_peers() == kPeers; }));
  enough = true;
  CHECK(run.wait().outcome == Outcome::kFinished);
}

TEST_CASE("a peer with the secret that does not belong to the run is refused") {
  ThreadRun run(2, workers([&](Session& session) -> Status {
                  if (!session.barrier() || !session.store_get("go", kPatience)) return kFailedExit;
                  return std::nullopt;
                }));
  run.start();
  REQUIRE(run.wait_for("training_started"));
  struct Row {
    const char* what;
    std::function<void(wire::Hello&)> change;
  };
  std::uint64_t refused = 0;
  for (const Row& row :
       {Row{"the rank is here already", [](wire::Hello&) {}},
        Row{"of an attempt that is over", [](wire::Hello& hello) { hello.attempt = -1; }},
        Row{"of an attempt to come", [](wire::Hello& hello) { hello.attempt = 1; }},
        Row{"no such rank", [](wire::Hello& hello) { hello.rank = 2; }},
        Row{"no rank", [](wire::Hello& hello) { hello.rank = -1; }},
        Row{"another run", [](wire::Hello& hello) { hello.run_id = "other"; }},
        Row{"no role", [](wire::Hello& hello) { hello.role = "boss"; }},
        Row{"a relay, but the workers are on this machine", [](wire::Hello& hello) { hello.role = wire::kRelayRole; }},
        Row{"with the key of another rank", [](wire::Hello& hello) { hello.key_name = wire::worker_key_name(0, 1); }},
        Row{"with the key of another attempt",
            [](wire::Hello& hello) { hello.key_name = wire::worker_key_name(1, 0); }},
        Row{"a worker that sends requests of the command line", [](wire::Hello& hello) {
              hello.key_name = wire::worker_key_name(0, 0);
              hello.role = "client";
            }}}) {
    CAPTURE(row.what);
    wire::Hello hello;
    hello.run_id = run.plan().id;
    row.change(hello);
    asio::io_context io;
    auto joined = join_now(io, run.controller().address(), wire::key_of(run.plan().secret, hello.key_name), hello);
    REQUIRE_FALSE(joined);
    CHECK(joined.error().message().find("refused") != std::string::npos);
    CHECK(eventually([&] { return run.controller().refused_peers() == refused + 1; }));
    ++refused;
  }
  CHECK_FALSE(run.controller().finished());
  run.controller().stop("checked", true);
  run.wait();
}

TEST_CASE("a worker that sends an invalid message is disconnected") {
  wire::Report out_of_turn;
  out_of_turn.index = 7;
  wire::Report outside;
  outside.checkpoint = "../../etc";
  struct Row {
    const char* what;
    wire::Message message;
  };
  for (const Row& row : {Row{"a message of the controller's", wire::Welcome{}}, Row{"a second hello", wire::Hello{}},
                         Row{"what a client sends", wire::StopRun{}}, Row{"a report out of turn", out_of_turn},
                         Row{"a checkpoint outside the run folder", outside}}) {
    CAPTURE(row.what);
    ThreadRun run(1, sends({row.message}));
    run.plan().rules.cause_window_s = 0.02;
    RunEnd end = run.go();
    CHECK(end.outcome == Outcome::kFailed);
    REQUIRE(end.failures.size() == 1);
    CHECK(end.failures[0].cause == "lost");
    CHECK(end.failures[0].error_type == "WorkerLost");
  }
}

TEST_CASE("a rank joins once per attempt") {
  std::atomic<bool> joined_again = false;
  ThreadRun run(1, [&](const RankProcess& process) -> engine::ExitStatus {
    {
      // Another connection in the worker's place: it receives the start message and leaves.
      asio::io_context io;
      auto joined = join_raw(io, process);
      if (!joined) return kFailedExit;
      if (!finish(io, joined->channel->read_message())) return kFailedExit;
    }
    while (!process.killed.stop_requested()) {
      asio::io_context io;
      if (join_raw(io, process)) joined_again = true;
    }
    return kFailedExit;
  });
  CHECK(run.go().outcome == Outcome::kFailed);
  CHECK_FALSE(joined_again);
}

// Messages that a rank sends before it learns that its attempt is over.
TEST_CASE("reports in flight at the end of an attempt do not close the connection") {
  std::atomic<int> starts = 0;
  const auto report = [](std::int64_t index) {
    wire::Report made;
    made.index = index;
    return made;
  };
  ThreadRun run(2, [&](const RankProcess& process) -> engine::ExitStatus {
    if (process.rank == 1) {
      return workers([&](Session&) -> Status {
        if (starts++ == 0) return kSegmentationFault;
        return std::nullopt;
      })(process);
    }
    asio::io_context io;
    auto joined = join_raw(io, process);
    if (!joined) return kFailedExit;
    auto talk = [&]() -> asio::awaitable<bool> {
      while (true) {
        auto message = co_await joined->channel->read_message();
        if (!message) co_return false;
        const auto* start = std::get_if<wire::Start>(&*message);
        if (start && start->attempt == 1) joined->channel->send(wire::Done{});
        if (std::holds_alternative<wire::Cancel>(*message)) {
          for (std::int64_t i = 0; i < 3; ++i) joined->channel->send(report(i));
          joined->channel->send(wire::Ready{});
        }
        if (std::holds_alternative<wire::Goodbye>(*message)) co_return true;
      }
    };
    return finish(io, talk()) ? kEnded : kFailedExit;
  });
  run.plan().rules.warm_restart = true;
  run.plan().rules.max_failures = 1;
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(run.events("worker_kept").size() == 1);
  CHECK(starts == 2);
}

TEST_CASE("a worker that becomes silent is lost") {
  ThreadRun run(1, [](const RankProcess& process) -> engine::ExitStatus {
    asio::io_context io;
    auto joined = join_raw(io, process);
    if (!joined) return kFailedExit;
    // The connection stays open but silent, as for a stopped process or a dead machine.
    until_killed(process);
    return kFailedExit;
  });
  run.plan().heartbeat_s = 0.02;
  run.plan().heartbeat_timeout_s = 0.1;
  run.plan().rules.cause_window_s = 0.02;
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFailed);
  REQUIRE(end.failures.size() == 1);
  CHECK(end.failures[0].cause == "lost");
  CHECK(end.failures[0].message.find("no heartbeat for ") != std::string::npos);
}

TEST_CASE("a worker that does not read does not block others") {
  constexpr int kAnswers = 12;
  const std::string large = wire::random_bytes(1 << 20);
  std::atomic<bool> fast_is_through = false;
  ThreadRun run(2, [&](const RankProcess& process) -> engine::ExitStatus {
    if (process.rank == 0) {
      return workers([&](Session& session) -> Status {
        if (!session.store_set("large", large)) return kFailedExit;
        if (!session.store_get("asked", kPatience)) return kFailedExit;
        for (int i = 0; i < 100; ++i) {
          if (!session.store_add("n", 1) || !session.report({{"i", i}})) return kFailedExit;
        }
        fast_is_through = true;
        return std::nullopt;
      })(process);
    }
    asio::io_context io;
    auto joined = join_raw(io, process);
    if (!joined) return kFailedExit;
    auto ask_much = [&]() -> asio::awaitable<bool> {
      auto start = co_await joined->channel->read_message();
      for (int i = 0; i < kAnswers; ++i) {
        wire::StoreGet get;
        get.id = i;
        get.key = "large";
        joined->channel->send(get);
      }
      wire::StoreSet asked;
      asked.key = "asked";
      joined->channel->send(asked);
      co_return start.ok();
    };
    if (!finish(io, ask_much())) return kFailedExit;
    while (!fast_is_through && !process.killed.stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto read_all = [&]() -> asio::awaitable<int> {
      int whole = 0;
      while (whole < kAnswers) {
        auto message = co_await joined->channel->read_message();
        if (!message) co_return whole;
        auto* reply = std::get_if<wire::Reply>(&*message);
        if (reply && reply->id == whole && reply->value.get_if<Bytes>() && reply->value.as_bytes().data == large)
          ++whole;
      }
      joined->channel->send(wire::Done{});
      while (co_await joined->channel->read_message()) {
      }
      co_return whole;
    };
    return finish(io, read_all()) == kAnswers ? kEnded : kFailedExit;
  });
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(fast_is_through);
}

namespace {

// A worker whose waits are defined by the test.
struct Waiting {
  std::string key;
  double timeout_s = 1800.0;
  std::vector<std::string> busy = {};             // at first
  std::vector<std::int64_t> other_requests = {};  // not known to the controller
  bool returns = false;                           // instead
};

// Waits for its key, answers the controller's requests about the wait, and counts them.
ThreadEngine::Body waits(std::map<int, Waiting> ranks, std::atomic<int>& asked) {
  return [ranks = std::move(ranks), &asked](const RankProcess& process) -> engine::ExitStatus {
    const Waiting& self = ranks.at(process.rank);
    asio::io_context io;
    auto joined = join_raw(io, process);
    if (!joined) return kFailedExit;
    auto talk = [&]() -> asio::awaitable<bool> {
      auto start = co_await joined->channel->read_message();
      if (!start || !std::holds_alternative<wire::Start>(*start)) co_return false;
      if (self.returns) {
        joined->channel->send(wire::Done{});
      } else {
        wire::StoreGet get;
        get.id = 7;
        get.key = self.key;
        get.timeout_s = self.timeout_s;
        joined->channel->send(get);
      }
      int times = 0;
      while (auto message = co_await joined->channel->read_message()) {
        const auto* request = std::get_if<wire::WaitRequest>(&*message);
        if (!request) continue;
        wire::Waits answer;
        answer.id = request->id;
        answer.requests = {7};
        if (++times <= 3) {
          answer.busy = self.busy;
          answer.requests.insert(answer.requests.end(), self.other_requests.begin(), self.other_requests.end());
        }
        ++asked;
        joined->channel->send(answer);
      }
      co_return true;
    };
    finish(io, talk());
    until_killed(process);
    return kFailedExit;
  };
}

}  // namespace

TEST_CASE("ranks that wait for keys that no rank can set fail the attempt at once") {
  std::atomic<int> asked = 0;
  std::map<int, Waiting> ranks{{0, {.key = "torch/1/default_pg/1"}}, {1, {.key = "torch/1/default_pg/0"}}};
  std::string told =
      "every rank waits, and no rank can make progress: rank 0 for store key torch/1/default_pg/1; rank 1 for store "
      "key torch/1/default_pg/0";
  int rounds = 1;
  SUBCASE("all of them") {}
  SUBCASE("not while one of their threads could still set one") {
    ranks[1].busy = {"python (4711)"};
    rounds = 4;
  }
  SUBCASE("not while an answer to one may be in flight") {
    ranks[0].other_requests = {8};
    rounds = 4;
  }
  SUBCASE("except those that have returned") {
    ranks[2] = {.key = "", .returns = true};
    told += "; rank 2 has returned from the training function";
  }
  const int waiting = 2;
  ThreadRun run(static_cast<int>(ranks.size()), waits(ranks, asked));
  run.plan().heartbeat_s = 0.02;
  RunEnd end = run.go();
  CHECK(end.outcome == Outcome::kFailed);
  REQUIRE(end.failures.size() == 1);
  CHECK(end.failures[0].cause == "deadlock");
  CHECK(end.failures[0].message == told);
  CHECK(asked >= rounds * waiting);
}

TEST_CASE("a wait with a short timeout is not a deadlock") {
  std::atomic<int> asked = 0;
  ThreadRun run(2, waits({{0, {.key = "a"}}, {1, {.key = "b", .timeout_s = 5.0}}}, asked));
  run.plan().heartbeat_s = 0.02;
  tests::FakeClock clock;
  run.set_clock(clock);
  run.start();
  REQUIRE(run.wait_for("training_started"));
  REQUIRE(clock.wait_for_readers(50));
  CHECK(asked == 0);
  CHECK_FALSE(run.controller().finished());
  run.controller().stop("checked", true);
  run.wait();
}

TEST_CASE("a relay carries workers of the current attempt only, each with its own key") {
  ThreadRun run(2, workers([](Session& session) -> Status {
                  if (session.start().attempt == 0) return raise(session, "no");
                  if (!session.barrier() || !session.store_get("go", kPatience)) return kFailedExit;
                  return std::nullopt;
                }));
  run.plan().workers_here = false;
  run.plan().listen = wire::testing::loopback_address();
  run.plan().rules.max_failures = 1;
  run.start();
  REQUIRE(run.wait_for("training_started", 2));
  const auto key_of = [&](int attempt, int rank) {
    return wire::key_of(run.plan().secret, wire::worker_key_name(attempt, rank));
  };
  wire::Hello hello = wire::testing::hello_of(run.plan().id);
  hello.role = "worker";
  hello.key_name = wire::worker_key_name(1, 0);
  hello.attempt = 1;
  wire::testing::LiveRelay relay({run.controller().address(), key_of(1, 0), hello});
  struct Row {
    const char* what;
    int attempt;
    std::string key;
  };
  std::uint64_t refused = 0;
  for (const Row& row : {Row{"what a node that was cut off starts late", 0, key_of(0, 0)},
                         Row{"the rank is here already", 1, key_of(1, 0)},
                         Row{"with the key that the relay itself has proved", 2, key_of(1, 0)}}) {
    CAPTURE(row.what);
    wire::Hello late = hello;
    late.attempt = row.attempt;
    late.key_name = wire::worker_key_name(row.attempt, 0);
    asio::io_context io;
    CHECK_FALSE(join_now(io, relay.address(), row.key, late));
    CHECK(eventually([&] { return run.controller().refused_peers() == refused + 1; }));
    ++refused;
  }
  CHECK_FALSE(run.controller().finished());
  CHECK(run.events("attempt_started").size() == 2);
  run.controller().stop("checked", true);
  run.wait();
}

TEST_CASE("the event log names peers without a key of the run") {
  ThreadRun run(1, workers([](Session& session) -> Status {
                  if (!session.store_get("never", kPatience)) return kFailedExit;
                  return std::nullopt;
                }));
  run.plan().listen = wire::testing::loopback_address();
  run.start();
  REQUIRE(run.wait_for("training_started"));
  asio::io_context io;
  wire::Hello hello = wire::testing::hello_of(run.plan().id);
  CHECK_FALSE(join_now(io, run.controller().address(), wire::random_bytes(wire::kSecretSize), hello));
  REQUIRE(run.wait_for("connection_refused"));
  const Dict event = run.events("connection_refused").front();
  CHECK(event["from"] == Value("127.0.0.1"));
  CHECK(event["why"] == Value("TLS handshake: its key is not of this run"));
  run.controller().stop("checked", true);
  run.wait();
}

TEST_CASE("a run over TLS") {
  ThreadRun run(2, workers([](Session& session) -> Status {
                  auto data = session.broadcast(session.start().world_rank == 0 ? std::optional<std::string>("hello")
                                                                                : std::nullopt);
                  if (!data || *data != "hello" || !session.report({{"a", 1}})) return kFailedExit;
                  return std::nullopt;
                }));
  run.plan().listen = wire::testing::loopback_address();
  RunEnd end = run.go();
  CHECK(end.error == "");
  CHECK(end.outcome == Outcome::kFinished);
  CHECK(run.controller().address().text().starts_with("tls://127.0.0.1:"));
}

}  // namespace controller_peers_test
