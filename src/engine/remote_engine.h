#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "trireme/value.h"

// Workers on the nodes of a cluster. An adapter process knows the cluster and starts one agent per node; the agents
// connect to this process, start the workers and report how they end. docs/engines.md describes the adapter's protocol.

namespace trireme::engine {

class RemoteTable;

struct RemoteEngineOptions {
  std::string name;                  // as the user wrote it, for messages
  std::vector<std::string> adapter;  // command of the adapter
  Dict options;                      // the user's engine options
  std::vector<std::string> agent;    // command of the agents
  std::map<std::string, std::string> agent_env = {};
  std::filesystem::path state_dir;
};

// What the nodes are, as last known. Shared by the engine's thread and the callers.
struct RemoteNodes {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<NodeInfo> nodes;
  bool known = false;  // every agent that is started at the beginning has joined, or has failed
  bool places = false;
  std::string trouble;  // why nodes are missing; empty: none is
  wire::Address listen;
  NodeMemory memory;
};

class RemoteEngine final : public Engine {
 public:
  // Starts the adapter; returns when it is ready, or why it is not.
  static Result<std::unique_ptr<RemoteEngine>> start(RemoteEngineOptions options);
  // Ends all workers, agents and the adapter.
  ~RemoteEngine() override;
  RemoteEngine(const RemoteEngine&) = delete;
  RemoteEngine& operator=(const RemoteEngine&) = delete;

  Result<void> check(const GangRequest& request) const override;
  GangId reserve(GangRequest request, EventHandler handler) override;
  void release(GangId gang) override;
  void start(GangId gang, int bundle, ProcessSpec spec) override;
  void kill(GangId gang, int bundle, base::Seconds grace) override;
  // Waits until the nodes are known.
  std::vector<NodeInfo> nodes() const override;
  void warm_up(std::vector<std::string> preload) override;
  std::string name() const override { return options_.name; }
  bool may_add_nodes() const override;
  std::optional<wire::Address> listen_address() const override;
  NodeMemory node_memory() const override;

 private:
  explicit RemoteEngine(RemoteEngineOptions options);
  void post(std::function<void(RemoteTable&)> action);

  RemoteEngineOptions options_;
  base::SystemClock clock_;
  mutable RemoteNodes nodes_;
  pid_t owner_;  // the process that started the thread; a forked copy does not have it
  std::mutex mutex_;
  GangId next_gang_ = 1;
  std::unique_ptr<asio::io_context> io_;
  std::unique_ptr<RemoteTable> table_;
  std::unique_ptr<std::jthread> thread_;
};

}  // namespace trireme::engine
