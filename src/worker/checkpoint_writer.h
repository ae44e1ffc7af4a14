#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "base/result.h"
#include "checkpoint/snapshot.h"
#include "storage/files.h"
#include "trireme/context.h"
#include "wire/message.h"
#include "worker/node_memory.h"

namespace trireme::worker {

// By the name that Python has for it.
base::Result<CheckpointUploadMode> upload_mode_from(std::string_view name);

// A rank's part of a checkpoint: one of folder, state and upload.
struct CheckpointSource {
  std::string folder = {};  // on this machine; with kNoUpload a folder in the run's storage
  std::optional<Dict> state = {};
  // The user's upload function: receives the checkpoint's name, returns the folder in the storage.
  std::function<base::Result<std::string>(const std::string& name)> upload = {};
  CheckpointUploadMode mode = CheckpointUploadMode::kSync;
  bool delete_folder = false;  // after it is stored
};

// Stores this rank's parts of checkpoints in the run's storage, in the order of the reports. In ASYNC mode the caller's
// thread only copies the state; a separate thread writes it, with a bounded number of parts in flight.
class CheckpointWriter {
 public:
  struct Stored {
    std::vector<storage::FileRecord> files;
    Dict memory;    // path in the checkpoint -> descriptor of the memory that holds it
    int nodes = 0;  // that hold the files in memory; 0: they are in the storage
  };
  // Called once per part, on either thread.
  using Done = std::function<void(std::int64_t index, base::Result<Stored> stored)>;

  // `memory`: takes the files instead of the storage while it has room; null: nodes hold no checkpoints.
  CheckpointWriter(const wire::Start& start, std::shared_ptr<storage::Files> files, Done done,
                   std::shared_ptr<NodeMemory> memory = nullptr);
  // Finishes all parts in flight.
  ~CheckpointWriter();

  // The name of the checkpoint folder in the run folder, as requested; empty: named by the report index. Fails if the
  // source is invalid.
  base::Result<std::optional<std::string>> name_for(const CheckpointSource& source,
                                                    const std::optional<std::string>& asked) const;
  base::Result<void> store(std::int64_t index, const std::string& name, CheckpointSource source);

  // The checkpoint of report `index` is committed: older snapshots are no longer needed.
  void committed(std::int64_t index);
  void wait_idle();
  // Calls back once, immediately or when no part is in flight.
  void when_idle(std::function<void()> callback);

 private:
  struct Part {
    std::int64_t index;
    std::string name;
    CheckpointSource source;
    std::shared_ptr<const checkpoint::Snapshot> snapshot =
        {};             // shared with kept_: the memory tier outlives the upload
    bool kept = false;  // in kept_
  };

  base::Result<Stored> write_part(const Part& part);
  bool fits_memory(const CheckpointSource& source, std::int64_t index, const std::string& name) const;
  base::Result<Stored> hold_in_memory(const Part& part);
  base::Result<Stored> store_part(const Part& part);
  base::Result<Stored> write_state(const Part& part);
  base::Result<std::vector<storage::FileRecord>> write_state_files(const Part& part, const std::string& folder);
  base::Result<void> check_storage();
  base::Result<void> check_outside_of_run(const std::string& folder) const;
  void wait_for_name(const Part& part);
  void begin(bool async);
  void end();

  const int rank_;
  const int attempt_;
  const std::string run_id_;
  const std::string run_path_;  // on the driver's machine
  const std::string storage_path_;
  const std::string host_;
  const bool keep_in_memory_;
  const std::size_t max_in_flight_;
  std::shared_ptr<storage::Files> files_;  // shared with the session
  std::shared_ptr<NodeMemory> memory_;     // shared with the session
  Done done_;
  checkpoint::SnapshotPool snapshots_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t active_ = 0;  // parts in flight, on both threads
  bool storage_checked_ = false;
  std::atomic<bool> told_of_memory_ = false;   // that there is no room
  std::int64_t committed_ = -1;                // the newest report whose checkpoint is known to be committed
  std::map<std::string, std::int64_t> names_;  // name -> last report of checkpoints not known to be committed
  std::map<std::int64_t, std::shared_ptr<const checkpoint::Snapshot>> kept_;
  std::vector<std::function<void()>> when_idle_;

  base::BoundedQueue<Part> queue_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::worker
