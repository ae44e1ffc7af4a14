#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/state_file.h"
#include "trireme/value.h"

// A copy of a state that is written while the training goes on. All the training waits for is one copy of the bytes
// into memory that was used before; whatever takes longer happens where the snapshot is written.

namespace trireme::checkpoint {

class SnapshotBuffer;

// The two files of a state, in memory. Never changes.
class Snapshot {
 public:
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  std::uint64_t num_bytes() const;

  // As save_state(), from any thread.
  base::Result<std::vector<storage::FileRecord>> write(const std::string& folder,
                                                       const SaveOptions& options = {}) const;

  // By name, descriptors of the files. Another process may open them (/proc/<pid>/fd/<number>) as long as this one
  // holds the snapshot, and what it has opened stays for as long as it likes; but once the snapshot is gone, its memory
  // is used for the next one.
  std::map<std::string, int> descriptors() const;

 private:
  friend class SnapshotPool;
  struct Shelf;
  Snapshot(std::shared_ptr<Shelf> shelf, std::unique_ptr<SnapshotBuffer> buffer, std::string tree);

  std::shared_ptr<Shelf> shelf_;  // shared with the pool, which may go first
  std::unique_ptr<SnapshotBuffer> buffer_;
  std::string tree_;
};

// Keeps the memory of snapshots that are gone for the next ones: as many buffers as were in use at the same time.
class SnapshotPool {
 public:
  // 0 threads: as many as are of use for the size and the machine.
  explicit SnapshotPool(int threads = 0);

  // May be called from several threads. Nobody may write to the tensors meanwhile.
  base::Result<std::shared_ptr<const Snapshot>> take(const Dict& state);

  // How many buffers wait for the next snapshot.
  std::size_t num_spare() const;

 private:
  int threads_;
  std::shared_ptr<Snapshot::Shelf> shelf_;  // shared with the snapshots that were taken
};

}  // namespace trireme::checkpoint
