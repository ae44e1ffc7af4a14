#pragma once

#include <string>
#include <vector>

#include "api/progress.h"
#include "trireme/value.h"

namespace trireme::api {

// The terminal output of a run of a C++ program: one line per event, and progress. If stdout is a terminal, progress is
// one live line below the others; otherwise it is printed as lines, at growing intervals.
class Display {
 public:
  // `log_level` as in LoggingConfig: above INFO only problems and worker output are shown.
  explicit Display(const std::string& log_level);
  ~Display() { clear(); }
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  // `seconds` since the run started.
  void show(const std::vector<Dict>& events, double seconds);
  void show_result(const Dict& outcome);

 private:
  bool wanted(const std::string& kind) const;
  void show_progress(double seconds);
  void clear();

  bool info_;
  bool warnings_;
  bool live_;
  bool drawn_ = false;
  Progress progress_;
  // For progress in plain lines.
  std::int64_t reports_shown_ = 0;
  double next_line_ = 0.0;
  double pause_;
};

}  // namespace trireme::api
