#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/state_file.h"
#include "trireme/value.h"

// A copy of a state that is written while the training continues. The training only waits for one copy of the bytes
// into reused memory; everything slower happens in the thread that writes the snapshot.

namespace trireme::checkpoint {

class SnapshotBuffer;

// The two files of a state, in memory. Immutable.
class Snapshot {
 public:
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  std::uint64_t num_bytes() const;

  // Like save_state(), from any thread.
  base::Result<std::vector<storage::FileRecord>> write(const std::string& folder,
                                                       const SaveOptions& options = {}) const;

  // Descriptors of the files by name. Another process may open them (/proc/<pid>/fd/<number>) while this process holds
  // the snapshot, and keep them open. But after the snapshot is destroyed, its memory is reused for the next one.
  std::map<std::string, int> descriptors() const;

 private:
  friend class SnapshotPool;
  struct Shelf;
  Snapshot(std::shared_ptr<Shelf> shelf, std::unique_ptr<SnapshotBuffer> buffer, std::string tree);

  std::shared_ptr<Shelf> shelf_;  // shared with the pool, which may be destroyed first
  std::unique_ptr<SnapshotBuffer> buffer_;
  std::string tree_;
};

// Keeps the memory of destroyed snapshots for reuse: as many buffers as were in use at the same time.
class SnapshotPool {
 public:
  // 0 threads: chosen by the size and the machine.
  explicit SnapshotPool(int threads = 0);

  // Thread-safe. The tensors must not be written during the call.
  base::Result<std::shared_ptr<const Snapshot>> take(const Dict& state);

  // Number of buffers available for the next snapshot.
  std::size_t num_spare() const;

 private:
  int threads_;
  std::shared_ptr<Snapshot::Shelf> shelf_;  // shared with the snapshots
};

}  // namespace trireme::checkpoint
