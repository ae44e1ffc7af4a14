#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/tick_watch.h"
#include "engine/adapter_process.h"
#include "engine/remote_engine.h"
#include "engine/remote_options.h"
#include "engine/supervisor.h"
#include "wire/server.h"

// The nodes, agents and gangs of a remote engine, as seen by its thread. The parts are in separate files:
// remote_adapter.cpp (the adapter's answers and events), remote_agents.cpp (agents and their messages),
// remote_gangs.cpp (room and processes).

namespace trireme::engine {

class RemoteTable final : private wire::ServerHandler {
 public:
  RemoteTable(asio::io_context& io, const base::Clock& clock, const RemoteEngineOptions& options, RemoteNodes& shared);

  // Starts the adapter. `ready` is called once, when runs can use the engine, or with the reason why not.
  void begin(std::function<void(Result<void>)> ready);
  // Returns after the adapter has ended.
  void shut_down();

  void reserve(GangId id, GangRequest request, EventHandler handler);
  void release(GangId id, std::promise<void> done);
  void start(GangId id, int bundle, ProcessSpec spec);
  void kill(GangId id, int bundle, base::Seconds grace);
  void warm_up(wire::AgentWarmUp message);

 private:
  struct Node {
    NodeInfo info;                   // `total` is what gangs may use; `available` is computed
    bool known = false;              // `info` is complete
    bool listed = false;             // the cluster offers it at the moment
    bool leaving = false;            // it will be taken away: nothing is placed on it any more
    std::optional<int> agent;        // the one that is starting or connected
    std::string trouble;             // why it has no agent
    int failed_starts = 0;           // in a row
    base::MonotonicTime next_start;  // of an agent, after one has failed
  };
  struct Agent {
    std::string node;
    std::shared_ptr<wire::Channel> channel;  // nullptr: it has not joined yet
    bool ready = false;                      // it has described its node
    std::string memory_address;              // of the checkpoints in its memory; empty: it holds none
    base::MonotonicTime heard;               // or when it was started
    std::map<BundleId, int> processes;       // pid; 0: not started yet
  };
  struct Gang {
    enum class State { kWaiting, kAsked, kJoining, kReserved };
    GangRequest request;
    EventHandler handler;
    State state = State::kWaiting;
    bool said_waiting = false;
    bool lost = false;
    base::MonotonicTime deadline;
    std::vector<Slot> slots;
    std::optional<std::promise<void>> leaving;
    std::set<int> awaited;  // agents that have not confirmed the release
  };

  // The adapter.
  void ask(Dict request, std::function<void(Result<Value>)> answer);
  void on_event(Dict event);
  void on_adapter_gone(const std::string& why);
  void on_started(Result<Value> answer);
  Result<void> open(const Dict& answer);
  void ask_nodes();
  void on_nodes(Result<Value> answer);
  Result<void> take_node(const Value& value);
  void on_reserved(const Dict& event);
  void on_preempt(const std::string& node, const std::string& why, std::optional<base::Seconds> seconds);

  // Agents.
  void start_agent(const std::string& node);
  void start_missing_agents();
  void agents_changed();
  void tell_agents(base::MonotonicTime now);
  void lose_agent(int number, const std::string& why);
  Agent* agent_on(const std::string& node);
  base::Result<wire::Welcome> admit(const wire::Hello& hello) override;
  void opened(const std::shared_ptr<wire::Channel>& channel) override;
  void received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) override;
  void closed(const std::shared_ptr<wire::Channel>& channel, const base::Error& why) override;
  void refused(const std::string& from, const base::Error& why) override;
  Result<void> take(int number, wire::AgentInfo& message);
  Result<void> take(int number, wire::AgentStarted& message);
  Result<void> take(int number, wire::AgentStartFailed& message);
  Result<void> take(int number, wire::AgentExited& message);
  Result<void> take(int number, wire::AgentReleased& message);
  Result<void> take(int number, wire::AgentOutput& message);
  Result<void> take(int number, wire::Heartbeat& message);
  Result<void> take(int number, wire::PreemptionNotice& message);
  template <typename T>
  Result<void> take(int number, T& message);
  static base::Fd open_log(const std::filesystem::path& path);
  void tick();
  void check_agents(base::MonotonicTime now);

  // Gangs.
  void try_reserve(GangId id, Gang& gang);
  void place_here(GangId id, Gang& gang);
  void ask_adapter_for_room(GangId id, Gang& gang);
  void join_agents(GangId id, Gang& gang);
  void on_busy(GangId id, Gang& gang, std::string why);
  void refuse(GangId id, Gang& gang, base::Error error);
  void retry_waiting();
  bool waits_before(GangId id) const;
  void drop_released();
  void lose_gangs_on(const std::string& node, const std::string& why);
  void tell(GangId gang, EngineEvent event);
  std::vector<NodeInfo> usable_nodes() const;
  std::string missing_nodes() const;
  bool settled() const;
  void publish();

  asio::io_context& io_;
  const base::Clock& clock_;
  const RemoteEngineOptions& options_;
  RemoteNodes& shared_;
  RemoteOptions settings_;
  std::string id_;      // of this engine, in greetings
  std::string secret_;  // for the agents
  // What agents and the driver prove to each other's memory: a key of one agent would not prove anything to another.
  const std::string peers_secret_;
  std::function<void(Result<void>)> ready_;
  std::unique_ptr<AdapterProcess> adapter_;
  bool adapter_gone_ = false;
  bool places_ = false;
  std::unique_ptr<wire::Server> server_;
  std::int64_t next_question_ = 1;
  std::map<std::int64_t, std::function<void(Result<Value>)>> questions_;
  bool asking_nodes_ = false;
  base::MonotonicTime asked_nodes_;
  std::map<std::string, Node> nodes_;
  std::vector<std::string> order_;  // of the nodes, as listed
  std::map<int, Agent> agents_;
  int next_agent_ = 1;
  std::optional<base::MonotonicTime> agents_changed_;  // and the agents do not know it yet
  std::map<GangId, Gang> gangs_;
  std::vector<wire::AgentWarmUp> warm_ups_;
  std::set<std::string> log_folders_;  // where agents may append to the logs of workers
  asio::steady_timer tick_timer_{io_};
  base::TickWatch watch_;
};

}  // namespace trireme::engine
