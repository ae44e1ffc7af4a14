#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/line_splitter.h"
#include "base/clock.h"
#include "base/fd.h"

namespace trireme::api {

struct LogLine {
  int rank;
  std::string line;

  bool operator==(const LogLine&) const = default;
};

// Reads the log files of a run while they grow. It has no thread: the caller polls it.
class LogFollower {
 public:
  // Follows this file as the output of the rank; it need not exist yet. A later attempt of the same rank has a new
  // file: the rest of the earlier one is read first. With `last`, starts with the last `last` lines of the file.
  void follow(int rank, std::string path, std::optional<std::size_t> last = std::nullopt);

  // The complete lines since the last call, and every kProgressPeriod the state of a progress bar that has no newline
  // yet. Reads at most kReadSize of each file, to bound the time of a call.
  std::vector<LogLine> poll(base::MonotonicTime now);

  // The remaining lines, including those without a newline. Closes the files; follow() may be called again.
  std::vector<LogLine> finish();

  static constexpr std::size_t kReadSize = 256 * 1024;
  static constexpr std::chrono::seconds kProgressPeriod{5};

 private:
  struct File {
    std::string path;
    base::Fd fd;
    std::uint64_t offset = 0;
    LineSplitter splitter;
    std::string progress = {};                             // last shown
    std::optional<base::MonotonicTime> progress_due = {};  // while a bar is being drawn
  };

  // Returns the number of bytes read.
  std::size_t read_some(File& file, std::vector<std::string>& lines);
  void drain(File& file, std::vector<std::string>& lines);
  void show_progress(File& file, base::MonotonicTime now, std::vector<std::string>& lines);

  std::map<int, std::deque<File>> files_;  // by rank, the oldest attempt first
  std::string buffer_;
};

// The end of a log, for an error message. Reads only the end of the file; empty if the file does not exist.
std::vector<std::string> last_lines(const std::string& path, std::size_t count);

}  // namespace trireme::api
