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
#include <cstdlib>
#include <deque>
#include <istream>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/fields.h"
#include "base/hex.h"
#include "base/json.h"
#include "scale_cluster.h"
#include "wire/client.h"

namespace trireme::bench {
namespace {

constexpr int kJoiningAtOnce = 200;  // a server refuses more than 1024 incomplete greetings

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

// Everything runs on one thread.
class Players {
 public:
  Players(const Cluster& cluster, int reports_each)
      : cluster_(cluster),
        reports_each_(reports_each),
        driver_(io_, asio::local::stream_protocol(), std::atoi(std::getenv("TRIREME_ENGINE_FD"))) {}

  void play() {
    asio::co_spawn(io_, adapter(), [](const std::exception_ptr&) { ::_exit(0); });
    asio::co_spawn(io_, report_and_beat(), asio::detached);
    io_.run();
  }

 private:
  struct Worker {
    std::shared_ptr<wire::Channel> channel;
    std::shared_ptr<wire::Channel> agent;
    std::int64_t gang = 0;
    int bundle = 0;
    int sent = 0;
    std::int64_t next = 0;
    bool in_function = false;
  };

  asio::awaitable<void> adapter() {
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
      if (what == "start_agent") {
        asio::co_spawn(io_, agent(read_ticket(request["ticket"].as_string())), asio::detached);
      }
    }
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

  asio::awaitable<void> agent(Ticket ticket) {
    auto joined = co_await join(std::move(ticket));
    if (!joined) co_return;
    const auto channel = joined->channel;
    wire::AgentInfo info;
    info.version = TRIREME_VERSION;
    info.cpus = cluster_.workers_each;
    channel->send(info);
    agents_.push_back(channel);
    while (auto message = co_await channel->read_message()) {
      if (auto* start = std::get_if<wire::AgentStart>(&*message)) {
        start_worker(channel, *start);
      } else if (auto* kill = std::get_if<wire::AgentKill>(&*message)) {
        report_killed(*channel, kill->gang, kill->bundle);
      } else if (auto* release = std::get_if<wire::AgentRelease>(&*message)) {
        wire::AgentReleased done;
        done.gang = release->gang;
        channel->send(done);
      }
    }
  }

  void start_worker(const std::shared_ptr<wire::Channel>& agent, const wire::AgentStart& start) {
    wire::AgentStarted started;
    started.gang = start.gang;
    started.bundle = start.bundle;
    started.pid = start.bundle + 1;
    started.forked = true;
    agent->send(started);
    auto worker = std::make_shared<Worker>();
    worker->agent = agent;
    worker->gang = start.gang;
    worker->bundle = start.bundle;
    asio::co_spawn(io_, work(worker, read_ticket(start.ticket)), asio::detached);
  }

  asio::awaitable<void> work(std::shared_ptr<Worker> worker, Ticket ticket) {
    const bool last = ticket.hello.rank == cluster_.workers() - 1;
    auto joined = co_await join(std::move(ticket));
    if (!joined) co_return;
    worker->channel = joined->channel;
    heartbeat_ = std::chrono::duration_cast<std::chrono::microseconds>(base::Seconds(joined->welcome.heartbeat_s));
    workers_.push_back(worker);
    if (last) victim_ = worker;
    while (auto message = co_await worker->channel->read_message()) {
      if (auto* start = std::get_if<wire::Start>(&*message)) {
        worker->next = start->next_report;
        worker->in_function = true;
        ++in_function_;
        worker->channel->send(wire::Entered());
      } else if (std::holds_alternative<wire::Cancel>(*message)) {
        worker->in_function = false;
        --in_function_;
        worker->channel->send(wire::Ready());
      }
    }
    std::erase(workers_, worker);
  }

  void report(Worker& worker) {
    wire::Report report;
    report.index = worker.next++;
    report.metrics = {{"loss", 0.25}, {"accuracy", 0.875}, {"epoch", worker.sent / 10}, {"step", worker.sent}};
    worker.channel->send(report);
    ++worker.sent;
  }

  // Every worker has at most one unsent report, and beats in its turn.
  asio::awaitable<void> report_and_beat() {
    std::size_t turn = 0;
    auto beaten = std::chrono::steady_clock::now();
    while (true) {
      bool idle = true;
      const bool reporting = in_function_ == cluster_.workers();
      // The list may change while the loop waits.
      for (std::size_t i = 0; reporting && i < workers_.size(); ++i) {
        Worker& worker = *workers_[i];
        if (worker.sent >= reports_each_ + (killed_ ? 1 : 0) || worker.channel->unsent() > 0) continue;
        report(worker);
        idle = false;
        if (i % 64 == 0) co_await pause(std::chrono::microseconds(0));
      }
      const auto now = std::chrono::steady_clock::now();
      if (!workers_.empty()) {
        const auto share = (now - beaten) * workers_.size() / heartbeat_;
        for (auto left = share; left > 0; --left) workers_[++turn % workers_.size()]->channel->send(wire::Heartbeat());
        if (share > 0) beaten = now;
      }
      if (now - agents_beaten_ > std::chrono::milliseconds(500)) {
        for (const auto& agent : agents_) agent->send(wire::Heartbeat());
        agents_beaten_ = now;
      }
      if (idle && reporting && !killed_) co_await kill_one();
      co_await pause(std::chrono::microseconds(idle ? 500 : 0));
    }
  }

  asio::awaitable<void> kill_one() {
    co_await pause(std::chrono::seconds(1));  // the last reports arrive
    killed_ = true;
    const auto victim = victim_;
    --in_function_;
    victim->channel->close();
    report_killed(*victim->agent, victim->gang, victim->bundle);
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
  asio::io_context io_{1};
  asio::local::stream_protocol::socket driver_;
  int joining_ = 0;
  int in_function_ = 0;
  bool killed_ = false;
  std::vector<std::shared_ptr<wire::Channel>> agents_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::shared_ptr<Worker> victim_;
  std::chrono::microseconds heartbeat_{300'000};
  std::chrono::steady_clock::time_point agents_beaten_;
};

}  // namespace

void play_cluster(const Cluster& cluster, int reports_each) { Players(cluster, reports_each).play(); }

}  // namespace trireme::bench
