#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/file_requests.h"

namespace trireme::agent {

// The files of checkpoints that this node holds in memory: those of its own workers, and copies of another node's.
// Thread-safe.
class CheckpointMemory {
 public:
  // Counts as used until the last reference is gone: a file that is dropped may still be on its way to another node.
  using Content = std::shared_ptr<std::string>;

  // RUN/INDEX/FILE, as in messages.
  struct Name {
    std::string run;
    std::int64_t index = 0;
    std::string file;

    static base::Result<Name> parse(const std::string& path);
    std::string text() const;
    bool operator==(const Name&) const = default;
  };
  struct Held {
    Name name;
    int attempt = 0;
    Content content;
    int other = 0;  // the agent that also holds it; 0: none
  };

  // Room for a file, if at most `limit` bytes are used with it.
  base::Result<Content> make_room(std::int64_t size, std::int64_t limit);
  // Files of earlier attempts of the checkpoint are dropped; one of a later attempt is an error.
  base::Result<void> add(Held file);
  // nullptr: it is not held.
  Content find(const Name& name) const;

  wire::MemoryListing list(const std::string& run, std::int64_t index) const;
  // Checkpoints of reports below this number.
  void drop(const std::string& run, std::int64_t index);

  void set_other(const Name& name, int attempt, int agent);
  // Files whose other holder is not among these agents.
  std::vector<Held> without_copy(const std::set<int>& agents) const;

  std::int64_t used() const { return *used_; }

 private:
  struct File {
    Content content;
    int other = 0;
  };
  struct Checkpoint {
    int attempt = 0;
    std::map<std::string, File> files;
  };

  const std::shared_ptr<std::atomic<std::int64_t>> used_ = std::make_shared<std::atomic<std::int64_t>>(0);
  mutable std::mutex mutex_;
  std::map<std::string, std::map<std::int64_t, Checkpoint>> runs_;
};

// The agents that may hold this agent's copies, best first: the ring of all agents by number, from the next one on.
std::vector<int> copy_targets(int self, const std::set<int>& agents);

}  // namespace trireme::agent
