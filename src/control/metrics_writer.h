#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/metrics_files.h"

namespace trireme::control {

// Writes the MetricsFiles on a thread of its own: a new column means the whole table anew, and the disk may be slow or
// full. They are a convenience beside the event log, which has every report: what cannot be written is a warning.
class MetricsWriter {
 public:
  // Called on the writer's thread.
  using Warn = std::function<void(std::string message)>;

  MetricsWriter(std::string folder, Warn warn);
  ~MetricsWriter();

  void append(const Dict& report);
  // Begins to write; returns at once.
  void flush();

  // Writes what is left. A failure that nobody was warned of is the result.
  base::Result<void> close();

  // Reports that wait for a disk that takes none are dropped beyond this number.
  static constexpr std::size_t kMaxWaiting = 100000;

 private:
  void loop();
  base::Result<void> write(const std::vector<Dict>& reports);

  MetricsFiles files_;  // of the thread
  Warn warn_;
  bool failing_ = false;     // of the thread: and has been told
  base::Result<void> last_;  // of the thread, and of close() after it

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Dict> reports_;
  bool wanted_ = false;
  bool ending_ = false;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
