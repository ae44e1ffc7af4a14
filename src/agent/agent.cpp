#include "agent/agent.h"

#include <pthread.h>
#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "agent/log_forwarder.h"
#include "agent/memory_server.h"
#include "agent/node_environment.h"
#include "agent/worker_relays.h"
#include "base/dict_fields.h"
#include "base/environment.h"
#include "base/hex.h"
#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "base/tick_watch.h"
#include "engine/cpus.h"
#include "engine/gpus.h"
#include "engine/local_engine.h"
#include "wire/client.h"

namespace trireme::agent {
namespace {

using base::Result;

constexpr auto kForwardPeriod = std::chrono::milliseconds(100);
constexpr std::size_t kForwardBlock = std::size_t{256} << 10;
// Output waits in the files while the driver reads slowly.
constexpr std::size_t kMostUnsent = std::size_t{4} << 20;
constexpr auto kJoinTime = std::chrono::seconds(30);

// The agent while it is connected. Everything runs on the thread of its io_context; the engine's events are posted.
class Agent {
 public:
  Agent(asio::io_context& io, const Options& options, const base::Clock& clock, const Ticket& ticket,
        wire::Joined joined, LogForwarder* logs)
      : io_(io),
        options_(options),
        clock_(clock),
        channel_(std::move(joined.channel)),
        heartbeat_s_(joined.welcome.heartbeat_s),
        lease_s_(joined.welcome.lease_s),
        logs_(logs),
        relays_(ticket.agent),
        heard_(clock.now()),
        watch_(base::Seconds(joined.welcome.heartbeat_s), clock.now()),
        env_(base::environment()) {
    engine::LocalEngineOptions made;
    made.machine.host = base::host_name();
    // Reservations are the driver's; nothing is read from or written to this folder.
    made.machine.state_dir = logs_->root() / "state";
    made.python = options.python;
    engine_ = std::make_unique<engine::LocalEngine>(std::move(made));
    open_memory(ticket);
  }

  void begin() {
    channel_->send(info());
    asio::co_spawn(io_, read_loop(), asio::detached);
    beat();
    forward_soon();
    wait_for_signal();
  }
  // Kills everything.
  void end() { engine_.reset(); }
  void send_output(const std::string& path, std::string data) {
    wire::AgentOutput output;
    output.path = path;
    output.data = Bytes{std::move(data)};
    channel_->send(output);
  }
  const std::string& why() const { return why_; }

 private:
  using Bundle = std::pair<std::int64_t, int>;

  wire::AgentInfo info() const {
    wire::AgentInfo made;
    made.version = TRIREME_VERSION;
    made.cpus = engine::usable_cpus();
    for (const auto& gpu : engine::find_gpus().gpus) {
      made.gpus.push_back(Dict{{"id", gpu.id}, {"uuid", gpu.uuid}, {"type", gpu.type}});
    }
    if (!options_.python.empty()) made.python = options_.python.front();
    if (memory_) made.memory_address = memory_->address().text();
    return made;
  }

  // At the address that reaches the driver. Without it, workers store their checkpoints on the driver's machine.
  void open_memory(const Ticket& ticket) {
    wire::Address listen;
    listen.kind = wire::Address::Kind::kTls;
    listen.host = local_address(channel_->socket().native_handle());
    listen.port = ticket.first_port;
    listen.last_port = ticket.last_port;
    if (listen.host.empty()) return;
    auto opened = MemoryServer::start({ticket.run_id, ticket.agent, ticket.peers_secret, std::move(listen)});
    if (opened) {
      memory_ = *std::move(opened);
    } else {
      base::log_warning("{}: this node holds no checkpoints in memory: {}", base::host_name(),
                        opened.error().message());
    }
  }

  asio::awaitable<void> read_loop() {
    while (true) {
      auto message = co_await channel_->read_message();
      if (!message) {
        leave(message.error().message());
        co_return;
      }
      heard_ = clock_.now();
      std::visit([this](auto& held) { take(held); }, *message);
    }
  }

  void leave(std::string why) {
    if (!why_.empty()) return;
    why_ = std::move(why);
    io_.stop();
  }

  void beat() {
    beat_timer_.expires_after(base::nanoseconds(base::Seconds(heartbeat_s_)));
    beat_timer_.async_wait([this](const asio::error_code& cancelled) {
      if (cancelled) return;
      const auto now = clock_.now();
      // After a pause, messages may still be in flight.
      if (watch_.late(now).count() > 0) heard_ = now;
      const double silent = base::Seconds(now - heard_).count();
      if (silent > lease_s_) return leave(fmt::format("no message from the driver for {:.0f} s", silent));
      channel_->send(wire::Heartbeat{});
      beat();
    });
  }

  void forward_soon() {
    forward_timer_.expires_after(kForwardPeriod);
    forward_timer_.async_wait([this](const asio::error_code& cancelled) {
      if (cancelled) return;
      if (channel_->unsent() < kMostUnsent) logs_->forward(kForwardBlock);
      forward_soon();
    });
  }

  // A scheduler sends SIGTERM before it takes the node away. The second one, or another signal, ends this process.
  void wait_for_signal() {
    signals_.async_wait([this](const asio::error_code& cancelled, int number) {
      if (cancelled) return;
      if (number != SIGTERM || warned_) return leave(fmt::format("signal {}", number));
      warned_ = true;
      wire::PreemptionNotice notice;
      notice.why = fmt::format("SIGTERM to the agent on {}", base::host_name());
      channel_->send(notice);
      wait_for_signal();
    });
  }

  void take(wire::AgentWarmUp& message) {
    if (options_.python.empty()) return;
    engine_->warm_up(std::move(message.preload), node_environment(std::move(message.env), env_));
  }

  void take(wire::AgentPeers& message) {
    if (memory_) memory_->set_agents(message.addresses);
  }

  void take(wire::AgentStart& message) {
    const Bundle bundle{message.gang, message.bundle};
    auto spec = process_of(message);
    if (!spec) return fail(bundle, spec.error().message());
    // One local gang of one bundle without resources per process: the driver has placed it.
    drop(bundle);
    engine::GangRequest request;
    request.bundles = {{}};
    const auto handler = [this, bundle](engine::EngineEvent event) {
      asio::post(io_, [this, bundle, event = std::move(event)] { tell(bundle, event); });
    };
    const auto gang = engine_->reserve(std::move(request), handler);
    gangs_[bundle] = gang;
    engine_->start(gang, 0, *std::move(spec));
  }

  Result<engine::ProcessSpec> process_of(wire::AgentStart& message) {
    engine::ProcessSpec spec;
    spec.label = message.label;
    spec.argv = std::move(message.argv);
    spec.env = node_environment(std::move(message.env), env_);
    // The worker enters its copy of the driver's folder; see worker/session_files.cpp.
    std::error_code failure;
    spec.cwd = std::filesystem::is_directory(message.cwd, failure) ? std::move(message.cwd) : logs_->root().native();
    TRIREME_ASSIGN(spec.log_path, logs_->add(message.log_path));
    spec.env["TRIREME_LOG_ROOT"] = logs_->root();
    if (message.spread) name_interface(spec.env);
    TRIREME_ASSIGN(auto ticket, base::parse_json_dict(message.ticket));
    TRIREME_ASSIGN(const auto connection, wire::parse_ticket(ticket));
    TRIREME_ASSIGN(const auto relay, relays_.address_for(connection), "{}", message.host);
    ticket["address"] = relay.text();
    ticket["driver"] = ::getpid();  // who may end the worker with a SIGTERM
    ticket["host"] = message.host;
    if (memory_) {
      ticket["memory_address"] = memory_->worker_address().text();
      ticket["memory_secret"] = base::to_hex(memory_->worker_secret());
    }
    spec.ticket = base::to_json(ticket);
    spec.visible_gpus = std::move(message.visible_gpus);
    if (!message.python) {
      // A C++ program is its own agent, perhaps in a copy of the driver's (python/trireme/engines/_program.py).
      if (!spec.argv.empty()) spec.argv.front() = std::filesystem::read_symlink("/proc/self/exe", failure);
      return spec;
    }
    if (options_.python.empty()) return base::error("{}: the agent has no Python (TRIREME_PYTHON)", message.host);
    if (!spec.argv.empty()) spec.argv.front() = options_.python.front();
    spec.python =
        engine::PythonStart{std::move(message.preload), std::move(message.sys_path), std::move(message.python_argv)};
    return spec;
  }

  // Collectives choose an interface by the host's name, which often resolves to loopback. The one that reaches the
  // driver reaches the other nodes as well.
  void name_interface(Environment& env) const {
    const std::string address = local_address(channel_->socket().native_handle());
    if (address.empty()) return;
    env.try_emplace("TRIREME_NODE_ADDRESS", address);
    const auto interface = interface_of(address);
    if (!interface) return;
    for (const char* name : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) env.try_emplace(name, *interface);
  }

  void take(wire::AgentKill& message) {
    const auto gang = gangs_.find({message.gang, message.bundle});
    if (gang != gangs_.end()) engine_->kill(gang->second, 0, base::Seconds(message.grace_s));
  }

  void take(wire::AgentRelease& message) {
    for (auto it = gangs_.lower_bound({message.gang, 0}); it != gangs_.end() && it->first.first == message.gang;) {
      engine_->release(it->second);
      it = gangs_.erase(it);
    }
    logs_->forward_all();
    wire::AgentReleased done;
    done.gang = message.gang;
    channel_->send(done);
  }

  template <typename T>
  void take(T&) {}  // heartbeats only show that the driver is there

  // Frees the local gang of a bundle whose process has ended.
  void drop(Bundle bundle) {
    auto gang = gangs_.extract(bundle);
    if (!gang.empty()) engine_->release(gang.mapped());
  }

  void tell(Bundle bundle, const engine::EngineEvent& event) {
    if (const auto* started = std::get_if<engine::Started>(&event)) {
      wire::AgentStarted message;
      message.gang = bundle.first;
      message.bundle = bundle.second;
      message.pid = started->pid;
      message.forked = started->forked;
      channel_->send(message);
    } else if (const auto* failed = std::get_if<engine::StartFailed>(&event)) {
      fail(bundle, failed->error.message());
    } else if (const auto* exited = std::get_if<engine::Exited>(&event)) {
      logs_->forward_all();  // the error message shows its last lines
      channel_->send(exit_of(bundle, *exited));
    }
  }

  static wire::AgentExited exit_of(Bundle bundle, const engine::Exited& exited) {
    wire::AgentExited message;
    message.gang = bundle.first;
    message.bundle = bundle.second;
    message.pid = exited.pid;
    if (exited.status.kind == engine::ExitStatus::Kind::kCode) message.kind = "code";
    if (exited.status.kind == engine::ExitStatus::Kind::kSignal) message.kind = "signal";
    message.value = exited.status.value;
    message.out_of_memory = exited.out_of_memory;
    return message;
  }

  void fail(Bundle bundle, std::string why) {
    wire::AgentStartFailed message;
    message.gang = bundle.first;
    message.bundle = bundle.second;
    message.why = std::move(why);
    channel_->send(message);
  }

  asio::io_context& io_;
  const Options& options_;
  const base::Clock& clock_;
  std::shared_ptr<wire::SocketChannel> channel_;
  double heartbeat_s_;
  double lease_s_;
  LogForwarder* logs_;
  WorkerRelays relays_;
  base::MonotonicTime heard_;
  base::TickWatch watch_;
  const Environment env_;
  std::map<Bundle, engine::GangId> gangs_;
  asio::steady_timer beat_timer_{io_};
  asio::steady_timer forward_timer_{io_};
  asio::signal_set signals_{io_, SIGTERM, SIGINT, SIGHUP};
  bool warned_ = false;
  std::string why_;
  std::unique_ptr<MemoryServer> memory_;  // null: this node holds no checkpoints
  std::unique_ptr<engine::LocalEngine> engine_;
};

Result<wire::Joined> join(asio::io_context& io, const Ticket& ticket) {
  wire::Hello hello;
  hello.run_id = ticket.run_id;
  hello.key_name = ticket.key_name;
  hello.role = "agent";
  hello.rank = ticket.agent;
  hello.pid = ::getpid();
  hello.host = base::host_name();
  std::optional<Result<wire::Joined>> joined;
  auto join_once = [&]() -> asio::awaitable<void> {
    joined = co_await wire::join(io, ticket.address, ticket.key, hello);
  };
  asio::co_spawn(io, join_once(), asio::detached);
  const auto until = std::chrono::steady_clock::now() + kJoinTime;
  while (!joined && std::chrono::steady_clock::now() < until) {
    io.run_one_until(until);
    io.restart();
  }
  if (!joined) {
    return base::error(
        "no answer from the driver at {}:{} within {} s; check that this port is open, or set the engine option ports",
        ticket.address.host, ticket.address.port, kJoinTime.count());
  }
  return *std::move(joined);
}

}  // namespace

Result<Ticket> parse_ticket(const std::string& json) {
  TRIREME_ASSIGN(auto dict, base::parse_json_dict(json), "the agent's ticket");
  TRIREME_ASSIGN(auto connection, wire::parse_ticket(dict));
  Ticket ticket{std::move(connection)};
  TRIREME_ASSIGN(ticket.agent, wire::number_in_ticket(dict, "agent"));
  auto secret = base::from_hex(base::text_of(dict, "peers_secret"));
  if (!secret) return base::error("the agent's ticket: its peers_secret is not hex");
  ticket.peers_secret = *std::move(secret);
  ticket.first_port = static_cast<int>(base::int_of(dict, "first_port"));
  ticket.last_port = static_cast<int>(base::int_of(dict, "last_port"));
  return ticket;
}

Result<std::string> serve(const Ticket& ticket, const Options& options, const base::Clock& clock) {
  asio::io_context io(1);
  TRIREME_ASSIGN(auto joined, join(io, ticket));
  Agent* agent = nullptr;
  TRIREME_ASSIGN(auto logs, LogForwarder::create([&agent](const std::string& path, std::string data) {
                   if (agent) agent->send_output(path, std::move(data));
                 }));
  Agent serving(io, options, clock, ticket, std::move(joined), &logs);
  agent = &serving;
  serving.begin();
  io.run();
  serving.end();
  agent = nullptr;
  return serving.why();
}

namespace {

// A line at most; the sender may keep the descriptor open.
Result<std::string> read_line(int fd) {
  constexpr std::size_t kLongest = 4096;
  std::string line;
  for (char c = 0; line.size() < kLongest;) {
    const ssize_t count = ::read(fd, &c, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::system_error("read", errno);
    if (count == 0 || c == '\n') return line;
    line += c;
  }
  return base::error("the line is longer than {} bytes", kLongest);
}

int give_up(const std::string& why) {
  std::fprintf(stderr, "trireme agent: %s\n", why.c_str());
  return 1;
}

}  // namespace

int run(const Options& options) {
  ::pthread_setname_np(::pthread_self(), "trireme-agent");  // of the process, in `ps` and `top`
  auto line = read_line(STDIN_FILENO);
  if (!line) return give_up(std::move(line).error().wrap("could not read the ticket from standard input").message());
  if (line->empty()) {
    return give_up("no ticket on standard input: only engines start this command; see docs/clusters.md");
  }
  auto ticket = parse_ticket(*line);
  if (!ticket) return give_up(ticket.error().message());
  const base::SystemClock clock;
  auto ended = serve(*ticket, options, clock);
  if (!ended) return give_up(ended.error().message());
  std::fprintf(stderr, "trireme agent: ended: %s\n", ended->c_str());
  return 0;
}

}  // namespace trireme::agent
