#include "worker/session.h"

#include <doctest/doctest.h>

#include <atomic>

#include "base/json.h"
#include "unit/control/thread_run.h"
#include "unit/fake_clock.h"
#include "unit/sanitizers.h"
#include "unit/wire/live_server.h"

namespace session_test {

using namespace trireme;
using namespace trireme::worker;
using control::testing::kPatience;
using engine::testing::eventually;
using tests::append_file;

namespace {

Dict ticket_dict() {
  return {{"address", "unix:@nobody-listens-here"}, {"key", "00ff"}, {"run_id", "run"}, {"rank", 1}, {"attempt", 0}};
}

// The other side of one session: welcomes it, starts it, and answers as the test defines.
class FakeController final : private wire::ServerHandler {
 public:
  using Answer = std::function<void(wire::Channel&, const wire::Message&)>;

  explicit FakeController(Answer answer, double heartbeat_s = 0.05, double lease_s = 60.0, wire::Start start = {})
      : answer_(std::move(answer)), heartbeat_s_(heartbeat_s), lease_s_(lease_s), start_(std::move(start)) {
    auto server = wire::Server::listen(io_, wire::testing::unix_address(), "secret", *this);
    REQUIRE(server);
    server_ = *std::move(server);
    thread_ = std::jthread([this] {
      auto work = asio::make_work_guard(io_);
      io_.run();
    });
  }
  ~FakeController() { close(); }

  Ticket ticket() const { return {{server_->address(), "secret", "run"}, 0, 0}; }
  void on_channel(std::function<void(wire::Channel&)> act) {
    asio::post(io_, [this, act = std::move(act)] { act(*channel_); });
  }
  void close() {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
      server_->close();
      io_.stop();
    });
    thread_.join();
  }

 private:
  base::Result<wire::Welcome> admit(const wire::Hello&) override {
    wire::Welcome welcome;
    welcome.heartbeat_s = heartbeat_s_;
    welcome.lease_s = lease_s_;
    return welcome;
  }
  void opened(const std::shared_ptr<wire::Channel>& channel) override {
    channel_ = channel;
    channel->send(start_);
  }
  void received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) override {
    answer_(*channel, message);
  }
  void closed(const std::shared_ptr<wire::Channel>&, const base::Error&) override {}

  Answer answer_;
  const double heartbeat_s_;
  const double lease_s_;
  const wire::Start start_;
  asio::io_context io_{1};
  std::shared_ptr<wire::Channel> channel_;  // used by this thread
  std::unique_ptr<wire::Server> server_;
  std::jthread thread_;
};

void echo_heartbeats(wire::Channel& channel, const wire::Message& message) {
  if (std::holds_alternative<wire::Heartbeat>(message)) channel.send(message);
}

// Records the messages of a session by name, and sends goodbye to one that is done.
class MessageBook {
 public:
  FakeController::Answer answer() {
    return [this](wire::Channel& channel, const wire::Message& message) {
      echo_heartbeats(channel, message);
      if (std::holds_alternative<wire::Heartbeat>(message)) {
        ++beats_;
        return;
      }
      {
        const std::lock_guard lock(mutex_);
        messages_.push_back(message);
      }
      if (std::holds_alternative<wire::Done>(message)) channel.send(wire::Goodbye{});
    };
  }
  std::vector<std::string> names() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> all;
    for (const auto& message : messages_) all.emplace_back(wire::name_of(message));
    return all;
  }
  bool holds(const std::string& name) {
    const auto all = names();
    return std::find(all.begin(), all.end(), name) != all.end();
  }
  int beats() const { return beats_; }
  template <typename T>
  std::vector<T> all() {
    const std::lock_guard lock(mutex_);
    std::vector<T> found;
    for (const auto& message : messages_) {
      if (const auto* held = std::get_if<T>(&message)) found.push_back(*held);
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<wire::Message> messages_;
  std::atomic<int> beats_ = 0;
};

// A run's storage in a folder, with an upload that blocks until the test opens the gate.
struct SlowStorage {
  tests::TempDir dir;
  std::promise<void> gate;

  wire::Start start() const {
    append_file(dir / ".trireme_storage_marker", "run");
    wire::Start start;
    start.run_id = "run";
    start.storage_path = dir.path();
    return start;
  }
  CheckpointSource upload() {
    CheckpointSource source;
    source.mode = CheckpointUploadMode::kAsync;
    source.upload = [path = dir.path().string(),
                     open = gate.get_future().share()](const std::string& name) -> base::Result<std::string> {
      open.wait();
      append_file(path + "/" + name + "/file", "x");
      return path + "/" + name;
    };
    return source;
  }
};

// Records why the connection was lost.
class LossBook {
 public:
  Session::LostHandler handler() {
    return [this](const std::string& why) {
      const std::lock_guard lock(mutex_);
      why_ = why;
      ++count_;
    };
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  std::string why() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  std::mutex mutex_;
  std::string why_;
  int count_ = 0;
};

}  // namespace

TEST_CASE("tickets") {
  auto good = parse_ticket(base::to_json(ticket_dict()));
  REQUIRE(good);
  CHECK(good->rank == 1);
  CHECK(good->key == std::string("\0\xff", 2));
  CHECK(good->address.name == "nobody-listens-here");

  CHECK_FALSE(parse_ticket(""));
  CHECK_FALSE(parse_ticket("[]"));
  for (const char* key : {"address", "key", "run_id", "rank", "attempt"}) {
    Dict incomplete = ticket_dict();
    incomplete.erase(key);
    CHECK(parse_ticket(base::to_json(incomplete)).error().message() == fmt::format("the ticket has no '{}'", key));
  }
  Dict wrong = ticket_dict();
  wrong["key"] = "xyz";
  CHECK(parse_ticket(base::to_json(wrong)).error().message() == "the ticket's key is not hex");
  wrong = ticket_dict();
  wrong["address"] = "nowhere";
  CHECK_FALSE(parse_ticket(base::to_json(wrong)));
}

TEST_CASE("no session without a listening controller") {
  auto session = Session::join(*parse_ticket(base::to_json(ticket_dict())), [](const std::string&) {});
  REQUIRE_FALSE(session);
  CHECK(session.error().message().find("rank 1: could not reach unix:@nobody-listens-here") == 0);
}

TEST_CASE("the store, as a worker uses it") {
  std::atomic<int> problems = 0;
  auto expect = [&](bool holds) { problems += holds ? 0 : 1; };
  control::testing::ThreadRun run(
      1, control::testing::workers([&](Session& session) -> std::optional<engine::ExitStatus> {
        const base::Seconds brief(0.02);
        auto absent = session.store_get("absent", brief);
        expect(!absent && absent.error().message() == "store key 'absent': timed out after 0.02 s");
        auto waited = session.store_wait({"absent", "too"}, brief);
        expect(!waited && waited.error().message() == "store keys absent, too: timed out after 0.02 s");
        expect(session.store_set("a", std::string("\0x", 2)).ok());
        auto a = session.store_get("a", kPatience);
        expect(a && *a == std::string("\0x", 2));
        expect(session.store_wait({"a"}, kPatience).ok());
        auto there = session.store_check({"a"});
        auto not_there = session.store_check({"a", "absent"});
        expect(there && *there && not_there && !*not_there);
        auto sum = session.store_add("n", 3);
        expect(sum && *sum == 3);
        auto no_number = session.store_add("a", 1);
        expect(!no_number && no_number.error().message() == "store key 'a' does not hold a number to add to");
        auto swapped = session.store_compare_set("n", "3", "4");
        expect(swapped && *swapped == "4");
        auto kept = session.store_compare_set("n", "3", "5");
        expect(kept && *kept == "4");
        auto count = session.store_count();
        expect(count && *count == 2);
        auto deleted = session.store_delete("a");
        auto again = session.store_delete("a");
        expect(deleted && *deleted && again && !*again);
        return std::nullopt;
      }));
  CHECK(run.go().outcome == control::Outcome::kFinished);
  CHECK(problems == 0);
}

TEST_CASE("reports with invalid checkpoints") {
  std::atomic<int> problems = 0;
  auto expect = [&](bool holds) { problems += holds ? 0 : 1; };
  control::testing::ThreadRun run(
      1, control::testing::workers([&](Session& session) -> std::optional<engine::ExitStatus> {
        const std::string folder = session.start().path + "/mine";
        append_file(folder + "/weights", "w");
        auto absent = session.report({}, CheckpointSource{.folder = folder + "/absent"});
        expect(!absent && absent.error().message().find("mine/absent does not exist") != std::string::npos);
        auto outside = session.report({}, CheckpointSource{.folder = folder}, {.checkpoint_name = "../outside"});
        expect(!outside && outside.error().message().find("invalid checkpoint name '../outside'") != std::string::npos);
        // Neither has used a number.
        auto stored = session.report({{"step", 0}}, CheckpointSource{.folder = folder});
        expect(stored && *stored == session.start().path + "/checkpoint_000000");
        auto named = session.report({{"step", 1}}, CheckpointSource{.folder = folder}, {.checkpoint_name = "best"});
        expect(named && *named == session.start().path + "/best");
        auto bare = session.report({{"step", 2}});
        expect(bare && !*bare);
        return std::nullopt;
      }));
  auto end = run.go();
  CHECK(end.outcome == control::Outcome::kFinished);
  CHECK(problems == 0);
  CHECK(end.reports == 3);
  CHECK(end.checkpoint == run.plan().path + "/best");
  CHECK(run.events("checkpoint_committed").size() == 2);
}

TEST_CASE("a lost controller ends every wait") {
  FakeController controller(echo_heartbeats);
  LossBook losses;
  auto joined = Session::join(controller.ticket(), losses.handler());
  REQUIRE(joined);
  Session& session = **joined;
  REQUIRE(session.wait_start());
  std::vector<std::jthread> waiting;
  std::atomic<int> errors = 0;
  waiting.emplace_back([&] { errors += session.store_get("k", kPatience) ? 0 : 1; });
  waiting.emplace_back([&] { errors += session.barrier() ? 0 : 1; });
  waiting.emplace_back([&] { errors += session.broadcast("x") ? 0 : 1; });
  waiting.emplace_back([&] { errors += session.finish({}, false) ? 0 : 1; });
  controller.close();
  waiting.clear();
  CHECK(errors >= 3);  // finish() does not fail: everything was sent
  CHECK(eventually([&] { return losses.count() == 1; }));
  CHECK(losses.why() == "closed by the peer");
  // From here on nothing waits.
  CHECK(session.report({{"a", 1}}).error().message() == "lost the connection to the controller: closed by the peer");
  CHECK(session.store_set("k", "v").error().message() == "lost the connection to the controller: closed by the peer");
  wire::Failed failure;
  session.fail(failure);
  CHECK_FALSE(session.wait_start());
}

TEST_CASE("a controller that is silent for a lease is lost") {
  FakeController controller([](wire::Channel&, const wire::Message&) {}, 0.01, 0.1);
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  CHECK(eventually([&] { return losses.count() == 1; }));
  CHECK(losses.why().find("no message for") == 0);
}

TEST_CASE("a worker that was paused does not mistake its own absence for the controller's") {
  // Answers nothing: only the clock decides.
  FakeController controller([](wire::Channel&, const wire::Message&) {}, 0.01, 30.0);
  LossBook losses;
  tests::FakeClock clock;
  auto session = Session::join(controller.ticket(), losses.handler(), clock);
  REQUIRE(session);
  for (int pause = 0; pause < 3; ++pause) {
    REQUIRE(clock.wait_for_readers(3));
    clock.advance(3600.0);
  }
  REQUIRE(clock.wait_for_readers(3));
  CHECK(losses.count() == 0);
  // Awake, and still no message: now the controller is silent.
  for (int i = 0; i < 400 && losses.count() == 0; ++i) {
    clock.advance(0.1);
    clock.wait_for_readers(1, [&] { return losses.count() > 0; });
  }
  CHECK(eventually([&] { return losses.count() == 1; }));
  CHECK(losses.why() == "no message for 30 s");
}

TEST_CASE("a worker that computes still sends heartbeats") {
  std::atomic<int> beats = 0;
  FakeController controller(
      [&](wire::Channel& channel, const wire::Message& message) {
        if (const auto* heartbeat = std::get_if<wire::Heartbeat>(&message)) beats += heartbeat->sequence == beats + 1;
        echo_heartbeats(channel, message);
      },
      0.01);
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  // No call to the session, as in a long computation.
  CHECK(eventually([&] { return beats >= 5; }));
  CHECK(losses.count() == 0);
}

TEST_CASE("garbage from the controller is a loss") {
  FakeController controller(echo_heartbeats);
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  controller.on_channel([](wire::Channel& channel) { channel.send_payload("garbage"); });
  CHECK(eventually([&] { return losses.count() == 1; }));
}

TEST_CASE("a stop is noticed, unknown replies are ignored") {
  FakeController controller(echo_heartbeats);
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  CHECK_FALSE((*session)->stop_requested());
  controller.on_channel([](wire::Channel& channel) {
    channel.send(wire::Reply{});
    channel.send(wire::Stop{});
  });
  CHECK(eventually([&] { return (*session)->stop_requested(); }));
  CHECK(losses.count() == 0);
}

TEST_CASE("uploads in flight are stored before a session reports that it is idle") {
  SlowStorage storage;
  MessageBook messages;
  FakeController controller(messages.answer(), 0.05, 60.0, storage.start());
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  using Names = std::vector<std::string>;
  SUBCASE("after a stop, with nothing in flight") {
    controller.on_channel([](wire::Channel& channel) { channel.send(wire::Stop{}); });
    CHECK(eventually([&] { return messages.names() == Names{"Drained"}; }));
  }
  SUBCASE("after a stop") {
    REQUIRE((*session)->report({{"step", 0}}, storage.upload()));
    controller.on_channel([](wire::Channel& channel) { channel.send(wire::Stop{}); });
    REQUIRE(eventually([&] { return (*session)->stop_requested(); }));
    CHECK_FALSE(messages.holds("Drained"));
    storage.gate.set_value();
    CHECK(eventually([&] { return messages.names() == Names{"Report", "UploadDone", "Drained"}; }));
    REQUIRE(messages.all<wire::UploadDone>().size() == 1);
    CHECK(messages.all<wire::UploadDone>()[0].files.size() == 1);
  }
  SUBCASE("when the function has returned") {
    REQUIRE((*session)->report({{"step", 0}}, storage.upload()));
    std::jthread returned([&] { (void)(*session)->finish(7, false).ok(); });
    CHECK_FALSE(messages.holds("Done"));
    storage.gate.set_value();
    returned.join();
    CHECK(messages.names() == Names{"Report", "UploadDone", "Done"});
    CHECK(messages.all<wire::Done>()[0].value == Value(7));
  }
  SUBCASE("when the session is destroyed") {
    REQUIRE((*session)->report({{"step", 0}}, storage.upload()));
    std::jthread opener([&] { storage.gate.set_value(); });
    session->reset();
    CHECK(std::filesystem::exists(storage.dir / "checkpoint_000000/file"));
  }
  CHECK(losses.count() == 0);
}

TEST_CASE("the list of retained checkpoints, after the timeout with those that are known") {
  MessageBook messages;
  auto note = messages.answer();
  FakeController controller([&](wire::Channel& channel, const wire::Message& message) {
    note(channel, message);
    const auto* request = std::get_if<wire::ListCheckpoints>(&message);
    if (!request || !request->now) return;
    wire::Reply reply;
    reply.id = request->id;
    reply.value = List{Dict{{"name", "best"}}};
    channel.send(reply);
  });
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  for (int i = 0; i < 3; ++i) REQUIRE((*session)->report({{"step", i}}));
  auto listed = (*session)->list_checkpoints(true, base::Seconds(0.02));
  REQUIRE(listed);
  CHECK(*listed == List{Dict{{"name", "best"}}});
  const auto requests = messages.all<wire::ListCheckpoints>();
  REQUIRE(requests.size() == 2);
  for (const auto& request : requests) {
    CHECK(request.reports == 3);
    CHECK(request.validated);
  }
  CHECK_FALSE(requests[0].now);
  CHECK(requests[1].now);
  controller.close();
  CHECK((*session)
            ->list_checkpoints(false, std::nullopt)
            .error()
            .message()
            .find("lost the connection to the controller") == 0);
}

TEST_CASE("tensors are neither metrics nor return values") {
  MessageBook messages;
  FakeController controller(messages.answer());
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  const Tensor tensor = Tensor::of<float>({1, 2});
  struct Row {
    Metrics metrics;
    const char* where;
  };
  for (const Row& row : {Row{{{"loss", tensor}}, "metrics['loss'] is a tensor"},
                         Row{{{"a", Dict{{"b", tensor}}}}, "metrics['a']['b'] is a tensor"},
                         Row{{{"a", List{1, tensor}}}, "metrics['a'][1] is a tensor"}}) {
    CAPTURE(row.where);
    auto refused = (*session)->report(row.metrics);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find(row.where) == 0);
  }
  auto refused = (*session)->finish(List{tensor}, false);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("the return value[0] is a tensor") == 0);
  // Nothing was sent, and no index was used.
  REQUIRE((*session)->report({{"loss", 1}}));
  CHECK(eventually([&] { return messages.names() == std::vector<std::string>{"Report"}; }));
  CHECK(messages.all<wire::Report>()[0].index == 0);
}

TEST_CASE("only rank 0's value is sent") {
  for (int rank : {0, 1}) {
    wire::Start start;
    start.world_rank = rank;
    MessageBook messages;
    FakeController controller(messages.answer(), 0.05, 60.0, start);
    LossBook losses;
    auto session = Session::join(controller.ticket(), losses.handler());
    REQUIRE(session);
    REQUIRE((*session)->wait_start());
    REQUIRE((*session)->finish(Bytes{"pickle"}, true));
    const auto done = messages.all<wire::Done>().at(0);
    CHECK(done.value == (rank == 0 ? Value(Bytes{"pickle"}) : Value()));
    CHECK(done.pickled == (rank == 0));
  }
}

TEST_CASE("after the goodbye the controller may disconnect") {
  FakeController controller([](wire::Channel& channel, const wire::Message& message) {
    echo_heartbeats(channel, message);
    if (std::holds_alternative<wire::Done>(message)) {
      channel.send(wire::Goodbye{});
      channel.close_when_sent();
    }
  });
  LossBook losses;
  {
    auto session = Session::join(controller.ticket(), losses.handler());
    REQUIRE(session);
    REQUIRE((*session)->wait_start());
    CHECK((*session)->finish("value", false));
  }
  CHECK(losses.count() == 0);
}

TEST_CASE("an error reaches the controller completely before fail() returns") {
  std::promise<wire::Failed> arrived;
  FakeController controller([&](wire::Channel& channel, const wire::Message& message) {
    echo_heartbeats(channel, message);
    if (const auto* failed = std::get_if<wire::Failed>(&message)) arrived.set_value(*failed);
  });
  LossBook losses;
  wire::Failed failure;
  failure.error_type = "ValueError";
  failure.exception = Bytes{wire::random_bytes(8 << 20)};
  {
    auto session = Session::join(controller.ticket(), losses.handler());
    REQUIRE(session);
    REQUIRE((*session)->wait_start());
    (*session)->fail(failure);
  }
  auto future = arrived.get_future();
  REQUIRE(future.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  CHECK((future.get() == failure));
  CHECK(losses.count() == 0);
}

TEST_CASE("reports of several threads are sent in the order of their numbers") {
  constexpr int kThreads = 4;
  constexpr int kReports = 3000;
  SlowStorage storage;  // its gate is not used
  std::atomic<int> arrived = 0;
  std::atomic<int> out_of_order = 0;
  std::atomic<int> misnamed = 0;
  FakeController controller(
      [&](wire::Channel& channel, const wire::Message& message) {
        echo_heartbeats(channel, message);
        const auto* report = std::get_if<wire::Report>(&message);
        if (!report) return;
        out_of_order += report->index != arrived;
        if (report->checkpoint) misnamed += *report->checkpoint != fmt::format("checkpoint_{:06}", report->index);
        wire::Ack ack;
        ack.through = ++arrived;
        channel.send(ack);
      },
      0.05, 60.0, storage.start());
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  const std::string folder = storage.dir / "mine";
  append_file(folder + "/weights", "w");
  std::atomic<int> failed = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kReports; ++i) {
          std::optional<CheckpointSource> part;
          if (thread == 0 && i % 300 == 0) part = CheckpointSource{.folder = folder};
          failed += (*session)->report({{"i", i}}, std::move(part)) ? 0 : 1;
        }
      });
    }
  }
  CHECK(eventually([&] { return arrived == kThreads * kReports; }));
  CHECK(out_of_order == 0);
  CHECK(misnamed == 0);
  CHECK(failed == 0);
}

TEST_CASE("a thread that the function left behind cannot report to the next attempt") {
  MessageBook messages;
  FakeController controller(messages.answer());
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  controller.on_channel([](wire::Channel& channel) { channel.send(wire::Cancel{}); });
  REQUIRE((*session)->wait_for_cancel());
  CHECK((*session)->report({{"i", 0}}).error().message() == "this attempt is over");
  (*session)->become_ready();
  CHECK((*session)->report({{"i", 1}}).error().message() == "this attempt is over");
  CHECK((*session)->store_set("k", "v").error().message() == "this attempt is over");
  CHECK(eventually([&] { return messages.holds("Ready"); }));
  CHECK(messages.names() == std::vector<std::string>{"Aborted", "Ready"});
}

TEST_CASE("a cancel calls the hook on another thread, and waits for it") {
  MessageBook messages;
  FakeController controller(messages.answer());
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  std::promise<void> gate;
  std::atomic<int> calls = 0;
  (*session)->set_on_cancel([&, open = gate.get_future().share()] {
    ++calls;
    open.wait();
  });
  controller.on_channel([](wire::Channel& channel) { channel.send(wire::Cancel{}); });
  REQUIRE(eventually([&] { return calls == 1; }));
  std::atomic<bool> left = false;
  {
    const std::jthread user([&] { left = (*session)->wait_for_cancel(); });
    // The I/O thread continues meanwhile.
    controller.on_channel([](wire::Channel& channel) { channel.send(wire::Cancel{}); });
    const auto beats = messages.beats();
    REQUIRE(eventually([&] { return messages.beats() > beats + 1; }));
    CHECK(!left);
    CHECK(messages.names().empty());
    gate.set_value();
  }
  CHECK(left);
  (*session)->become_ready();
  REQUIRE(eventually([&] { return messages.holds("Ready"); }));
  CHECK(messages.names() == std::vector<std::string>{"Aborted", "Ready"});
  CHECK(calls == 1);

  // It belongs to one attempt.
  controller.on_channel([](wire::Channel& channel) { channel.send(wire::Start{}); });
  REQUIRE((*session)->wait_start());
  controller.on_channel([](wire::Channel& channel) { channel.send(wire::Cancel{}); });
  REQUIRE((*session)->wait_for_cancel());
  REQUIRE(eventually([&] { return messages.names().size() == 3; }));
  CHECK(messages.names().back() == "Aborted");
  CHECK(calls == 1);

  // A hook that is set too late is called at once, and its error does not end the process.
  (*session)->set_on_cancel([&] {
    ++calls;
    throw std::runtime_error("the communicator is broken");
  });
  REQUIRE((*session)->wait_for_cancel());
  CHECK(eventually([&] { return messages.names().size() == 4; }));
  (*session)->become_ready();
  CHECK(calls == 2);
}

TEST_CASE("reports wait while too many are unacknowledged") {
  std::atomic<int> arrived = 0;
  FakeController controller([&](wire::Channel& channel, const wire::Message& message) {
    echo_heartbeats(channel, message);
    if (std::holds_alternative<wire::Report>(message)) ++arrived;
  });
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  std::atomic<int> sent = 0;
  std::jthread reporter([&] {
    while (sent < 5000 && (*session)->report({{"i", sent.load()}})) ++sent;
  });
  REQUIRE(eventually([&] { return arrived == 4096; }));
  CHECK(sent <= 4096);
  wire::Ack ack;
  ack.through = 4096;
  controller.on_channel([ack](wire::Channel& channel) { channel.send(ack); });
  REQUIRE(eventually([&] { return arrived == 5000; }));
  CHECK(eventually([&] { return sent == 5000; }));
}

// Messages of 256 MiB are about sizes, not threads: they take a minute with ThreadSanitizer.
TEST_CASE("a message that is too large is an error for the caller, and the connection stays open" *
          doctest::skip(tests::kThreadSanitizer)) {
  MessageBook book;
  FakeController controller([&](wire::Channel& channel, const wire::Message& message) {
    book.answer()(channel, message);
    if (const auto* set = std::get_if<wire::StoreSet>(&message)) {
      wire::Reply reply;
      reply.id = set->id;
      channel.send(reply);
    }
  });
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  const std::string large(wire::kWorkerFrameLimit, 'x');

  const auto set = (*session)->store_set("key", large);
  REQUIRE_FALSE(set);
  CHECK(set.error().message().find("StoreSet: a message of 268435") == 0);
  const auto reported = (*session)->report({{"text", large}});
  REQUIRE_FALSE(reported);
  CHECK(reported.error().message().find("the report: a message of 268435") == 0);
  // It did not count.
  REQUIRE((*session)->report({{"text", "small"}}));
  CHECK((*session)->store_set("key", "small"));

  wire::Failed failure;
  failure.error_type = "ValueError";
  failure.message = "boom";
  failure.exception = Bytes{large};
  (*session)->fail(failure);
  REQUIRE(eventually([&] { return book.holds("Failed"); }));
  const auto failed = book.all<wire::Failed>();
  CHECK(failed[0].error_type == "ValueError");
  CHECK(failed[0].message == "boom");
  CHECK_FALSE(failed[0].exception);
  const auto reports = book.all<wire::Report>();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].index == 0);
  CHECK(losses.count() == 0);
}

TEST_CASE("a text that is too large is truncated at the end" * doctest::skip(tests::kThreadSanitizer)) {
  MessageBook book;
  FakeController controller(book.answer());
  LossBook losses;
  auto session = Session::join(controller.ticket(), losses.handler());
  REQUIRE(session);
  REQUIRE((*session)->wait_start());
  wire::Failed failure;
  failure.error_type = "ValueError";
  failure.message = "boom " + std::string(wire::kWorkerFrameLimit, 'x');
  (*session)->fail(failure);
  REQUIRE(eventually([&] { return book.holds("Failed"); }));
  const auto failed = book.all<wire::Failed>();
  CHECK(failed[0].message.starts_with("boom xxx"));
  CHECK(failed[0].message.ends_with("bytes more"));
  CHECK(failed[0].message.size() < 2 << 20);
}

}  // namespace session_test
