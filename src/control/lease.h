#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "storage/files.h"

namespace trireme::control {

// One driver per run where the folder lies in a store without locks. The holder counts a number up in a file; a
// challenger looks whether it still counts. No clock is compared with another machine's, and nothing that a crash
// leaves behind stands in the way: it does not count.
class Lease {
 public:
  struct Timing {
    base::Seconds period{4.0};
    // A challenger watches so long.
    base::Seconds patience{10.0};
  };
  using Warn = std::function<void(std::string message)>;

  // `say`: told before a wait that a person would wonder about.
  static base::Result<std::unique_ptr<Lease>> take(std::shared_ptr<storage::Files> files, const std::string& run_path,
                                                   const std::string& id, const Warn& say, Timing timing);
  // Gives it back.
  ~Lease();

  // Called once, on the lease's thread, when another driver has it: this one was away for longer than a challenger
  // waits, suspended perhaps.
  void on_lost(std::function<void(std::string why)> lost);

 private:
  Lease(std::shared_ptr<storage::Files> files, std::string path, std::string id, Timing timing);
  base::Result<void> write();
  void renew();

  std::shared_ptr<storage::Files> files_;  // shared with the run
  std::string path_;
  std::string id_;
  Timing timing_;
  std::int64_t beat_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  bool lost_ = false;
  std::function<void(std::string why)> on_lost_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
