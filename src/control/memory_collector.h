#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "base/result.h"
#include "checkpoint/mark.h"
#include "engine/engine.h"
#include "storage/files.h"
#include "wire/file_client.h"

namespace trireme::control {

// Copies checkpoints from the memory of nodes (agent/memory_server.h) to this machine, in order, on a thread of its
// own: the training does not wait for the driver's link. Thread-safe.
class MemoryCollector {
 public:
  struct Checkpoint {
    checkpoint::Origin origin;
    std::vector<storage::FileRecord> files;  // several with one path: ranks have stored different content
  };
  using Access = std::function<engine::NodeMemory()>;
  // `scratch`: a folder in the file system of the run's storage.
  MemoryCollector(std::string run_id, std::string scratch, Access access);
  // Ends the copy in progress, drops the others, and frees the memory of the nodes.
  ~MemoryCollector();

  // Asks a few agents, each briefly: an error if this machine cannot connect to one, because of a firewall for example.
  base::Result<void> reachable();
  // Whether the nodes that are left hold all files.
  base::Result<void> available(const Checkpoint& wanted);
  // Called on the collector's thread, with the folder that has the files and is removed afterwards.
  using Collected = std::function<void(base::Result<std::string> folder)>;
  void collect(Checkpoint wanted, Collected done);
  // The checkpoint is not needed any more; `done` is not called, unless it is about to be.
  void forget(checkpoint::Origin origin);
  bool forgotten(checkpoint::Origin origin) const;
  // Nodes free the checkpoints of reports below this number. A call that is still queued takes the number of the last
  // one.
  void drop_below(std::int64_t index);

 private:
  using Clients =
      std::map<std::string, std::shared_ptr<wire::FileClient>>;  // by address; shared with calls in progress
  wire::FileClient::Peer peer(const engine::NodeMemory& access, wire::Address address) const;
  Clients clients();
  void drop_now(std::int64_t index);
  // The agents that hold each file.
  base::Result<std::map<std::string, std::vector<std::string>>> holders(const Checkpoint& wanted);
  base::Result<void> copy(const Checkpoint& wanted, const std::string& folder);
  base::Result<void> copy_file(const Checkpoint& wanted, const std::string& path,
                               const std::vector<std::string>& addresses, const std::string& target);
  base::Result<void> copy_from(wire::FileClient& agent, const Checkpoint& wanted, const std::string& path,
                               const std::string& target);

  const std::string run_id_;
  const std::string scratch_;
  const Access access_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::int64_t> keep_from_ = 0;
  mutable std::mutex mutex_;
  Clients clients_;
  std::set<checkpoint::Origin> forgotten_;
  std::set<std::string> reached_;  // addresses
  base::BoundedQueue<std::function<void()>> jobs_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
