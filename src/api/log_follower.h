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

// Reads the log files of a run while they grow. It has no thread: whoever draws the terminal polls it.
class LogFollower {
 public:
  // From now on, or once it exists, this file is followed as the output of the rank. A later attempt of the same rank
  // is another file: what the earlier one still holds is read first. With `last`, only so many lines of what is there
  // now.
  void follow(int rank, std::string path, std::optional<std::size_t> last = std::nullopt);

  // The whole lines that came since the last call, and every kProgressPeriod the state of a progress bar that has no
  // newline yet. Reads at most kReadSize of each file, so a call stays short.
  std::vector<LogLine> poll(base::MonotonicTime now);

  // All that is left, also lines without a newline. The files are closed; follow() may begin again.
  std::vector<LogLine> finish();

  static constexpr std::size_t kReadSize = 256 * 1024;
  static constexpr std::chrono::seconds kProgressPeriod{5};

 private:
  struct File {
    std::string path;
    base::Fd fd;
    std::uint64_t offset = 0;
    LineSplitter splitter;
    std::string progress = {};                             // that was shown last
    std::optional<base::MonotonicTime> progress_due = {};  // while a bar is being drawn
  };

  // How many bytes were read.
  std::size_t read_some(File& file, std::vector<std::string>& lines);
  void drain(File& file, std::vector<std::string>& lines);
  void show_progress(File& file, base::MonotonicTime now, std::vector<std::string>& lines);

  std::map<int, std::deque<File>> files_;  // by rank, the oldest attempt first
  std::string buffer_;
};

// The end of a log, for an error message. Only the end of the file is read; empty when there is no such file.
std::vector<std::string> last_lines(const std::string& path, std::size_t count);

}  // namespace trireme::api
