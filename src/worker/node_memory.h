#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/files.h"
#include "wire/file_client.h"

namespace trireme::worker {

// The checkpoints of the run that nodes hold in memory, through the agent of this node (agent/memory_server.h).
// Thread-safe.
class NodeMemory {
 public:
  struct Place {
    std::string run_id;
    std::string storage_path;  // the run's folder, in which `checkpoint_000012/model.pt` is looked up
    std::int64_t limit = -1;   // bytes that each agent may hold; -1: a quarter of the node's memory
  };
  NodeMemory(wire::FileClient::Peer agent, Place place);

  struct Held {
    std::vector<storage::FileRecord> files;
    int nodes = 0;  // that hold all of the files
  };
  // Copies this rank's files of a checkpoint, given as path in it -> path of a file that the agent can open, into the
  // memory of this node and of another one. An error if this node has no room for them.
  base::Result<Held> hold(std::int64_t index, int attempt, const std::map<std::string, std::string>& files);

  // Sizes of the files below a path in the run's folder, or of the file itself, by the rest of the path.
  base::Result<std::map<std::string, std::int64_t>> list(const std::string& path);
  // Up to `size` bytes; nullopt: no node holds the file.
  base::Result<std::optional<std::string>> fetch(const std::string& path, std::int64_t offset, std::int64_t size);

 private:
  struct Name {
    std::int64_t index;
    std::string file;  // empty: the checkpoint itself
  };
  // nullopt: it is not in a checkpoint that nodes can hold. Names that the user has chosen can be reused, so only names
  // that are derived from the report are unique.
  std::optional<Name> name_of(const std::string& path) const;

  const Place place_;
  wire::FileClient agent_;
};

}  // namespace trireme::worker
