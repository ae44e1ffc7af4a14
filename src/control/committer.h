#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/queue.h"
#include "checkpoint/mark.h"
#include "control/event.h"
#include "storage/files.h"

namespace trireme::control {

// Writes manifests, removes checkpoints and mirrors the run's own files, in the order asked, on a thread of its own:
// the controller must hear heartbeats while a disk syncs or a store far away answers.
class Committer {
 public:
  struct Place {
    std::shared_ptr<storage::Files> files;  // shared with whoever opened the storage
    std::string storage_path;               // the run's folder in it
    std::string path;                       // the run's folder on this machine
  };
  // Called on the committer's thread.
  using Ended = std::function<void(CommitEnded)>;
  using Warn = std::function<void(std::string message)>;

  Committer(Place place, Warn warn);
  // Does what was asked for, then ends.
  ~Committer();

  // `event_log`: forced to disk before the manifest, so that a checkpoint never knows more than the log before it.
  void commit(ReadyCheckpoint ready, int attempt, double wall, base::Fd event_log, Ended ended);
  // Both leave a checkpoint alone that has got the name since.
  void update(KeptCheckpoint checkpoint);
  void remove(std::string name, checkpoint::Origin origin);
  // Copies run.json and the event log into a storage elsewhere, where Result.from_path() looks for them; `all`: logs
  // and the rest of the folder too. Nothing to do for a local run.
  void mirror(bool all);
  // Removes what a failed attempt has left, once everything asked for so far is done.
  using Settled = std::function<void(const base::Result<void>& settled)>;
  void settle(Settled settled);

 private:
  CommitEnded write_manifest(ReadyCheckpoint ready, int attempt, double wall);
  base::Result<void> mirror_now(bool all) const;
  void warn_of(const base::Result<void>& result, std::string_view what) const;

  Place place_;
  Warn warn_;
  base::BoundedQueue<std::function<void()>> jobs_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
