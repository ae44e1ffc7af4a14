#pragma once

#include <asio/io_context.hpp>
#include <asio/thread_pool.hpp>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "agent/checkpoint_memory.h"
#include "wire/file_client.h"
#include "wire/server.h"

namespace trireme::agent {

// Serves the checkpoints in this process's memory, on threads of its own: to the workers of this node, on an abstract
// Unix socket, and to the other agents and the driver. A file that a worker passes is copied to the next agent before
// the worker gets its answer. If an agent ends, the files that it held are copied again.
class MemoryServer {
 public:
  struct Options {
    std::string engine;  // id of the driver's engine, in greetings
    int agent = 0;       // number of this agent
    std::string secret;  // of the memory of all agents
    wire::Address listen;
  };
  static base::Result<std::unique_ptr<MemoryServer>> start(Options options);
  // Ends all connections.
  ~MemoryServer();

  // For other agents and the driver.
  const wire::Address& address() const { return for_peers_.server->address(); }
  // For the workers of this node.
  const wire::Address& worker_address() const { return for_workers_.server->address(); }
  const std::string& worker_secret() const { return worker_secret_; }

  // Numbers of all agents and their addresses.
  void set_agents(const wire::Variables& addresses);

 private:
  // One of the two ways in. Each has threads of its own: a request of a worker waits for another agent, whose request
  // must not wait for it.
  struct Entrance final : wire::ServerHandler {
    Entrance(MemoryServer& owner, std::string wanted, std::size_t threads)
        : memory(owner), role(std::move(wanted)), calls(threads) {}
    base::Result<wire::Welcome> admit(const wire::Hello& hello) override;
    void opened(const std::shared_ptr<wire::Channel>&) override {}
    void received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) override;
    void closed(const std::shared_ptr<wire::Channel>&, const base::Error&) override {}

    MemoryServer& memory;
    const std::string role;  // of those who may enter
    asio::thread_pool calls;
    std::unique_ptr<wire::Server> server;
  };
  struct Upload {
    int sender = 0;
    CheckpointMemory::Content content;
  };
  using Peers = std::map<int, std::shared_ptr<wire::FileClient>>;  // shared with calls in progress

  explicit MemoryServer(Options options);

  base::Result<Value> serve_worker(const wire::FileRequest& request);
  base::Result<Value> serve_peer(const wire::FileRequest& request, int sender);
  base::Result<Value> take(const wire::FileRequest& request);
  base::Result<Value> put(const wire::FileRequest& request, int sender);
  base::Result<Value> fetch_from_peers(const wire::FileRequest& request);
  base::Result<Value> list_everywhere(const wire::FileRequest& request);
  // Returns the agent that holds the copy; 0: none could take it.
  int copy_to_peer(const CheckpointMemory::Held& file, std::int64_t limit);
  base::Result<void> send(wire::FileClient& peer, const CheckpointMemory::Held& file, std::int64_t limit) const;
  void copy_again();
  Peers peers();

  const Options options_;
  const std::string worker_secret_;
  CheckpointMemory memory_;
  std::mutex mutex_;
  std::condition_variable told_;
  bool knows_agents_ = false;
  Peers peers_;
  std::map<std::string, Upload> uploads_;  // files that other agents are sending
  std::map<std::string, int> holders_;     // of files that workers read from other nodes
  std::int64_t limit_ = -1;                // as last set by a worker
  asio::io_context io_{1};
  Entrance for_workers_;
  Entrance for_peers_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::agent
