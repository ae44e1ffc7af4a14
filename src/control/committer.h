#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/queue.h"
#include "checkpoint/mark.h"
#include "control/event.h"
#include "storage/files.h"

namespace trireme::control {

// Writes manifests, removes checkpoints and mirrors the run's own files, in order, on a separate thread: the controller
// must handle heartbeats while a disk syncs or remote storage responds.
class Committer {
 public:
  struct Place {
    std::shared_ptr<storage::Files> files;  // shared with the code that opened the storage
    std::string storage_path;               // the run's folder in the storage
    std::string path;                       // the run folder on this machine
  };
  // Called on the committer's thread.
  using Ended = std::function<void(CommitEnded)>;
  using Warn = std::function<void(std::string message)>;

  Committer(Place place, Warn warn);
  // Finishes all jobs.
  ~Committer();

  // `event_log`: synced to disk before the manifest, so that a checkpoint is never newer than the log.
  // `collected`: a local folder with files that nodes held in memory; they are moved to the storage first. It is
  // removed.
  void commit(ReadyCheckpoint ready, int attempt, double wall, base::Fd event_log, std::optional<std::string> collected,
              Ended ended);
  // Both skip a newer checkpoint that has reused the name.
  void update(KeptCheckpoint checkpoint);
  void remove(std::string name, checkpoint::Origin origin);
  // Undoes what was prepared for checkpoints that reuse a name: moves the older one back unless its successor was
  // committed, and forgets what remove() left. Call when no rank writes any more.
  void end_reuse();
  // Copies run.json and the event log to remote storage, where Result.from_path() reads them; `all`: also the logs and
  // the other files of the folder. Does nothing for a local run.
  void mirror(bool all);
  // Removes incomplete files of a failed attempt, after all jobs queued so far. The result is the path of `checkpoint`
  // after that: if its name was about to be reused, it is moved back.
  using Settled = std::function<void(base::Result<std::optional<std::string>> checkpoint)>;
  void settle(std::optional<std::string> checkpoint, Settled settled);
  // Calls it on the committer's thread, after all jobs queued so far.
  void then(std::function<void()> job);

 private:
  CommitEnded write_manifest(ReadyCheckpoint ready, int attempt, double wall,
                             const std::optional<std::string>& collected);
  base::Result<void> mirror_now(bool all) const;
  base::Result<std::optional<std::string>> settle_now(const std::optional<std::string>& checkpoint) const;
  void warn_of(const base::Result<void>& result, std::string_view what) const;

  Place place_;
  Warn warn_;
  base::BoundedQueue<std::function<void()>> jobs_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
