#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "storage/files.h"

namespace trireme::control {

// Ensures that a run has only one driver if the folder is in storage without locks. The holder increments a counter in
// a file; a challenger watches whether it still changes. Clocks of different machines are never compared, and files
// left behind by a crash do not block: their counter does not change.
//
// The holder knows when it may have been considered dead: `validity` after the start of its last beat. From then on it
// must not write to the run's folder until confirm() returns success.
class Lease {
 public:
  struct Timing {
    base::Seconds period{4.0};
    // How long a challenger watches.
    base::Seconds patience{15.0};
    // Shorter than `patience` by the time that one storage call may take.
    base::Seconds validity{9.0};
    base::Seconds (*now)() = base::since_boot;
  };
  using Warn = std::function<void(std::string message)>;

  // `say`: called before a wait that users would notice.
  static base::Result<std::unique_ptr<Lease>> take(std::shared_ptr<storage::Files> files, const std::string& run_path,
                                                   const std::string& id, const Warn& say, Timing timing);
  // Releases the lease.
  ~Lease();

  // Called once if another driver has taken the lease: this one was away for longer than a challenger waits, for
  // example suspended. Called on the lease's thread, or at once if the lease is already lost.
  void on_lost(std::function<void(std::string why)> lost);

  // Whether this driver still owns the run. Returns at once while that is certain; otherwise waits for the next
  // successful beat, up to twice a challenger's patience.
  base::Result<void> confirm();

 private:
  Lease(std::shared_ptr<storage::Files> files, std::string path, std::string id, Timing timing);
  // Returns the time at which the write started.
  base::Result<base::Seconds> write(storage::Files& files);
  // One beat. Returns the reason if the lease is lost.
  base::Result<std::optional<std::string>> beat();
  bool sure() const { return timing_.now() - renewed_ < timing_.validity; }
  void renew();

  std::shared_ptr<storage::Files> files_;          // no retries: the next beat is the next try
  std::shared_ptr<storage::Files> patient_files_;  // the run's own, with retries
  std::string path_;
  std::string id_;
  Timing timing_;
  std::int64_t beat_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  base::Seconds renewed_{0};  // start of the last successful beat
  bool hurry_ = false;        // a caller waits for the next beat
  bool ending_ = false;
  std::string lost_;  // the reason; empty: not lost
  std::function<void(std::string why)> on_lost_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
