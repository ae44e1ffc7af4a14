#pragma once

#include <string>
#include <vector>

#include "api/progress.h"
#include "trireme/value.h"

namespace trireme::api {

// What a person sees of a run of a C++ program: lines as things happen, and progress: where stdout is a terminal, one
// line below the others that is drawn again and again; elsewhere a line when there is news, and ever more rarely.
class Display {
 public:
  // `log_level` as in LoggingConfig: above INFO only what went wrong and what workers print is shown.
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
  // Of progress in plain lines.
  std::int64_t reports_shown_ = 0;
  double next_line_ = 0.0;
  double pause_;
};

}  // namespace trireme::api
