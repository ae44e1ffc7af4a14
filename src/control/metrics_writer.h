#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/metrics_files.h"

namespace trireme::control {

// Writes the MetricsFiles on a separate thread: a new column rewrites the whole table, and the disk may be slow or
// full. The files are a convenience in addition to the event log, which has every report, so errors are only warnings.
class MetricsWriter {
 public:
  // Called on the writer's thread.
  using Warn = std::function<void(std::string message)>;

  MetricsWriter(std::string folder, Warn warn);
  ~MetricsWriter();

  void append(const Dict& report);
  // Starts writing; returns at once.
  void flush();

  // Writes the remaining rows. Returns a failure that no warning has reported.
  base::Result<void> close();

  // If the disk takes no data, reports beyond this number are dropped.
  static constexpr std::size_t kMaxWaiting = 100000;

 private:
  void loop();
  base::Result<void> write(const std::vector<Dict>& reports);

  MetricsFiles files_;  // used by the thread
  Warn warn_;
  bool failing_ = false;     // used by the thread: failed, and the warning was sent
  base::Result<void> last_;  // used by the thread, then by close()

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Dict> reports_;
  bool wanted_ = false;
  bool ending_ = false;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
