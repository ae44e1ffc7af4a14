#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/read_until.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/streambuf.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <istream>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fields.h"
#include "base/hex.h"
#include "base/json.h"
#include "scale_cluster.h"
#include "wire/client.h"
#include "wire/relay.h"

namespace trireme::bench {
namespace {

constexpr int kJoiningAtOnce = 200;  // a server refuses more than 1024 incomplete greetings
constexpr int kProcesses = 2;        // of players: both ends of 10,000 connections need more than 20,000 descriptors
constexpr double kReportsPerSecond = 20'000;

struct Ticket {
  wire::Address address;
  std::string key;
  wire::Hello hello;
};

Ticket read_ticket(const std::string& json) {
  const auto dict = *base::parse_json_dict(json);
  Ticket ticket;
  ticket.address = *wire::parse_address(dict["address"].as_string());
  ticket.key = *base::from_hex(dict["key"].as_string());
  ticket.hello.key_name = dict["key_name"].as_string();
  ticket.hello.run_id = dict["run_id"].as_string();
  ticket.hello.pid = 1;
  ticket.hello.host = "host";
  if (dict.contains("agent")) {
    ticket.hello.role = "agent";
    ticket.hello.rank = static_cast<int>(dict["agent"].as_int());
  } else {
    ticket.hello.rank = static_cast<int>(dict["rank"].as_int());
    ticket.hello.attempt = static_cast<int>(dict["attempt"].as_int());
  }
  return ticket;
}

// What all players see.
struct Stage {
  std::atomic<int> in_function = 0;
  std::atomic<int> reported = 0;  // workers that have sent all their reports
  std::atomic<bool> killed = false;
};

Stage& shared_stage() {
  void* memory = ::mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  return *new (memory) Stage;
}

// Some agents and their workers, on one thread. Their tickets arrive on `tickets`, one in each line.
class Players {
 public:
  Players(const Cluster& cluster, int reports_each, int share, int tickets, Stage& stage)
      : cluster_(cluster),
        reports_each_(reports_each),
        share_(share),
        tickets_(io_, asio::local::stream_protocol(), tickets),
        stage_(stage) {}

  void play() {
    asio::co_spawn(io_, read_tickets(), [](const std::exception_ptr&) { ::_exit(0); });
    asio::co_spawn(io_, report_and_beat(), asio::detached);
    io_.run();
  }

 private:
  struct Worker {
    std::shared_ptr<wire::SocketChannel> channel;
    std::int64_t gang = 0;
    int bundle = 0;
    int sent = 0;
    std::int64_t next = 0;
    bool in_function = false;
  };
  struct Agent {
    std::shared_ptr<wire::SocketChannel> channel;
    std::shared_ptr<wire::Relay> relay;
    std::vector<std::shared_ptr<Worker>> workers;
  };

  asio::awaitable<void> read_tickets() {
    asio::streambuf received;
    while (true) {
      co_await asio::async_read_until(tickets_, received, '\n', asio::use_awaitable);
      std::istream lines(&received);
      std::string line;
      std::getline(lines, line);
      asio::co_spawn(io_, play_agent(read_ticket(line)), asio::detached);
    }
  }

  asio::awaitable<base::Result<wire::Joined>> join(Ticket ticket) {
    while (joining_ >= kJoiningAtOnce) co_await pause(std::chrono::milliseconds(5));
    ++joining_;
    auto joined = co_await wire::join(io_, ticket.address, ticket.key, ticket.hello);
    --joining_;
    co_return joined;
  }

  asio::awaitable<void> pause(std::chrono::microseconds time) {
    asio::steady_timer timer(io_, time);
    co_await timer.async_wait(asio::use_awaitable);
  }

  asio::awaitable<void> play_agent(Ticket ticket) {
    auto joined = co_await join(std::move(ticket));
    if (!joined) co_return;
    const auto agent = std::make_shared<Agent>();
    agent->channel = joined->channel;
    wire::AgentInfo info;
    info.version = TRIREME_VERSION;
    info.cpus = cluster_.workers_each;
    agent->channel->send(info);
    agents_.push_back(agent);
    while (auto message = co_await agent->channel->read_message()) {
      if (auto* start = std::get_if<wire::AgentStart>(&*message)) {
        start_worker(agent, *start);
      } else if (auto* kill = std::get_if<wire::AgentKill>(&*message)) {
        report_killed(*agent->channel, kill->gang, kill->bundle);
      } else if (auto* release = std::get_if<wire::AgentRelease>(&*message)) {
        wire::AgentReleased done;
        done.gang = release->gang;
        agent->channel->send(done);
      }
    }
  }

  // With the code of a real agent, unless the workers connect directly.
  wire::Address relay_of(Agent& agent, const Ticket& worker) {
    if (cluster_.direct) return worker.address;
    if (!agent.relay) {
      agent.relay = *wire::Relay::open(io_, {worker.address, worker.key, worker.hello}, [] {});
    }
    return agent.relay->address();
  }

  void start_worker(const std::shared_ptr<Agent>& agent, const wire::AgentStart& start) {
    wire::AgentStarted started;
    started.gang = start.gang;
    started.bundle = start.bundle;
    started.pid = start.bundle + 1;
    started.forked = true;
    agent->channel->send(started);
    auto worker = std::make_shared<Worker>();
    worker->gang = start.gang;
    worker->bundle = start.bundle;
    auto ticket = read_ticket(start.ticket);
    ticket.address = relay_of(*agent, ticket);
    asio::co_spawn(io_, work(agent, worker, std::move(ticket)), asio::detached);
  }

  asio::awaitable<void> work(std::shared_ptr<Agent> agent, std::shared_ptr<Worker> worker, Ticket ticket) {
    const bool last = ticket.hello.rank == cluster_.workers() - 1;
    auto joined = co_await join(std::move(ticket));
    if (!joined) throw std::runtime_error(joined.error().message());
    worker->channel = joined->channel;
    heartbeat_ = std::chrono::duration_cast<std::chrono::microseconds>(base::Seconds(joined->welcome.heartbeat_s));
    agent->workers.push_back(worker);
    if (last) victim_ = {agent, worker};
    while (auto message = co_await worker->channel->read_message()) {
      if (auto* start = std::get_if<wire::Start>(&*message)) {
        worker->next = start->next_report;
        worker->in_function = true;
        ++stage_.in_function;
        worker->channel->send(wire::Entered());
      } else if (std::holds_alternative<wire::Cancel>(*message)) {
        worker->in_function = false;
        --stage_.in_function;
        worker->channel->send(wire::Ready());
      }
    }
    std::erase(agent->workers, worker);
  }

  void report(Worker& worker) {
    wire::Report report;
    report.index = worker.next++;
    report.metrics = {{"loss", 0.25}, {"accuracy", 0.875}, {"epoch", worker.sent / 10}, {"step", worker.sent}};
    worker.channel->send(report);
    if (++worker.sent == reports_each_) ++stage_.reported;
  }

  // In the first half, the workers of a node report at the same time, as those of a data-parallel job; then each alone.
  void report_next(std::size_t& turn) {
    const std::size_t each = static_cast<std::size_t>(cluster_.workers_each);
    const std::size_t pass = agents_.size() * each;
    const bool together = turn / pass <= static_cast<std::size_t>(reports_each_ / 2);
    const std::size_t at = turn++ % pass;
    auto& workers = agents_[together ? at / each : at % agents_.size()]->workers;
    const std::size_t index = together ? at % each : at / agents_.size();
    if (index < workers.size() && workers[index]->in_function) report(*workers[index]);
  }

  void beat(std::size_t& turn) {
    const auto& agent = *agents_[turn / static_cast<std::size_t>(cluster_.workers_each) % agents_.size()];
    const std::size_t index = turn++ % static_cast<std::size_t>(cluster_.workers_each);
    if (index < agent.workers.size()) agent.workers[index]->channel->send(wire::Heartbeat());
  }

  // At a steady rate, so that the controller is not always behind and reads no large batches.
  asio::awaitable<void> report_and_beat() {
    std::size_t reporting = 0;
    std::size_t beating = 0;
    auto before = std::chrono::steady_clock::now();
    double due = 0;
    double beats_due = 0;
    while (true) {
      co_await pause(std::chrono::milliseconds(1));
      const auto now = std::chrono::steady_clock::now();
      const double passed = base::Seconds(now - before).count();
      before = now;
      if (now - agents_beaten_ > std::chrono::milliseconds(500)) {
        for (const auto& agent : agents_) agent->channel->send(wire::Heartbeat());
        agents_beaten_ = now;
      }
      if (agents_.empty() || stage_.in_function != cluster_.workers()) continue;
      const std::size_t own = agents_.size() * static_cast<std::size_t>(cluster_.workers_each);
      beats_due += passed * static_cast<double>(own) / base::Seconds(heartbeat_).count();
      for (; beats_due >= 1; --beats_due) beat(beating);
      const std::size_t all = own * static_cast<std::size_t>(reports_each_);
      due = std::min(due + passed * kReportsPerSecond / share_, 0.1 * kReportsPerSecond);
      // Whole nodes at a time.
      for (; due >= cluster_.workers_each && (reporting < all); due -= cluster_.workers_each) {
        for (int i = 0; i < cluster_.workers_each; ++i) report_next(reporting);
      }
      if (victim_.second && !stage_.killed && stage_.reported == cluster_.workers()) co_await kill_one();
    }
  }

  asio::awaitable<void> kill_one() {
    co_await pause(std::chrono::seconds(1));  // the last reports arrive
    stage_.killed = true;
    const auto [agent, worker] = victim_;
    --stage_.in_function;
    worker->channel->close();
    report_killed(*agent->channel, worker->gang, worker->bundle);
  }

  static void report_killed(wire::Channel& agent, std::int64_t gang, int bundle) {
    wire::AgentExited exited;
    exited.gang = gang;
    exited.bundle = bundle;
    exited.pid = bundle + 1;
    exited.kind = "signal";
    exited.value = 9;
    agent.send(exited);
  }

  const Cluster cluster_;
  const int reports_each_;
  const int share_;  // number of processes of players
  asio::io_context io_{1};
  asio::local::stream_protocol::socket tickets_;
  Stage& stage_;
  int joining_ = 0;
  std::vector<std::shared_ptr<Agent>> agents_;
  std::pair<std::shared_ptr<Agent>, std::shared_ptr<Worker>> victim_;
  std::chrono::microseconds heartbeat_{300'000};
  std::chrono::steady_clock::time_point agents_beaten_;
};

// Answers the engine, and distributes the agents.
class Adapter {
 public:
  Adapter(const Cluster& cluster, std::vector<int> players) : cluster_(cluster), players_(std::move(players)) {}

  void play() {
    asio::co_spawn(io_, answer_requests(), [](const std::exception_ptr&) { ::_exit(0); });
    io_.run();
  }

 private:
  asio::awaitable<void> answer_requests() {
    asio::streambuf received;
    while (true) {
      co_await asio::async_read_until(driver_, received, '\n', asio::use_awaitable);
      std::istream lines(&received);
      std::string line;
      std::getline(lines, line);
      const auto request = *base::parse_json_dict(line);
      const std::string what = request["do"].as_string();
      if (what == "start") co_await answer(request, start_answer());
      if (what == "nodes") co_await answer(request, nodes());
      if (what == "start_agent") pass_on(request["ticket"].as_string() + "\n");
    }
  }

  void pass_on(const std::string& ticket) {
    const int player = players_[next_++ % players_.size()];
    if (::write(player, ticket.data(), ticket.size()) != std::ssize(ticket)) throw std::runtime_error("write");
  }

  static Value start_answer() {
    return Dict{{"version", 1}, {"name", "bench"}, {"places", false}, {"driver_host", "127.0.0.1"}};
  }

  Value nodes() const {
    List list;
    for (int i = 0; i < cluster_.agents; ++i) {
      const std::string name = fmt::format("node{:05}", i);
      Dict total{{"CPU", cluster_.workers_each}};
      list.push_back(Dict{{"id", name}, {"host", name}, {"total", std::move(total)}});
    }
    return list;
  }

  asio::awaitable<void> answer(const Dict& request, Value value) {
    Dict made{{"event", "answer"}, {"id", request["id"].as_int()}};
    made["value"] = std::move(value);
    const std::string line = base::to_json(made) + "\n";
    co_await asio::async_write(driver_, asio::buffer(line), asio::use_awaitable);
  }

  const Cluster cluster_;
  const std::vector<int> players_;
  std::size_t next_ = 0;
  asio::io_context io_{1};
  asio::local::stream_protocol::socket driver_{io_, asio::local::stream_protocol(),
                                               std::atoi(std::getenv("TRIREME_ENGINE_FD"))};
};

}  // namespace

void play_cluster(const Cluster& cluster, int reports_each) {
  Stage& stage = shared_stage();
  std::vector<int> players;
  for (int i = 0; i < kProcesses; ++i) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (const int other : players) ::close(other);
      ::close(ends[0]);
      ::close(std::atoi(std::getenv("TRIREME_ENGINE_FD")));
      Players(cluster, reports_each, kProcesses, ends[1], stage).play();
      ::_exit(0);
    }
    ::close(ends[1]);
    players.push_back(ends[0]);
  }
  Adapter(cluster, std::move(players)).play();
}

}  // namespace trireme::bench
