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

// One driver per run where the folder lies in a store without locks. The holder counts a number up in a file; a
// challenger looks whether it still counts. No clock is compared with another machine's, and nothing that a crash
// leaves behind stands in the way: it does not count.
//
// The holder knows itself when it may have been taken for dead: validity after the beginning of its last beat. It must
// not write to the run's folder from then on until confirm() says that the run is still its own.
class Lease {
 public:
  struct Timing {
    base::Seconds period{4.0};
    // A challenger watches so long.
    base::Seconds patience{15.0};
    // Shorter than the patience by what one call to the storage may take.
    base::Seconds validity{9.0};
    base::Seconds (*now)() = base::since_boot;
  };
  using Warn = std::function<void(std::string message)>;

  // `say`: told before a wait that a person would wonder about.
  static base::Result<std::unique_ptr<Lease>> take(std::shared_ptr<storage::Files> files, const std::string& run_path,
                                                   const std::string& id, const Warn& say, Timing timing);
  // Gives it back.
  ~Lease();

  // Called once, when another driver has it: this one was away for longer than a challenger waits, suspended perhaps.
  // On the lease's thread, or at once where it is lost already.
  void on_lost(std::function<void(std::string why)> lost);

  // Whether the run is still this driver's. Returns at once while that is sure; otherwise waits for the next beat that
  // the storage takes, up to twice a challenger's patience.
  base::Result<void> confirm();

 private:
  Lease(std::shared_ptr<storage::Files> files, std::string path, std::string id, Timing timing);
  // Returns when the write began.
  base::Result<base::Seconds> write(storage::Files& files);
  // One beat. Returns why the lease is another's, if it is.
  base::Result<std::optional<std::string>> beat();
  bool sure() const { return timing_.now() - renewed_ < timing_.validity; }
  void renew();

  std::shared_ptr<storage::Files> files_;  // tries once: the next beat is the next try
  std::string path_;
  std::string id_;
  Timing timing_;
  std::int64_t beat_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  base::Seconds renewed_{0};  // when the last beat that was stored began
  bool hurry_ = false;        // somebody waits for the next beat
  bool ending_ = false;
  std::string lost_;  // why; empty: it is not
  std::function<void(std::string why)> on_lost_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
