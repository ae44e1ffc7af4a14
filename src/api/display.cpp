#include "api/display.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "api/describe.h"
#include "base/text.h"
#include "control/event_fields.h"

namespace trireme::api {
namespace {

constexpr std::size_t kShownMetrics = 6;
constexpr double kFirstPause = 1.0;
constexpr double kLongestPause = 30.0;

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Display::Display(const std::string& log_level)
    : info_(log_level == "DEBUG" || log_level == "INFO"),
      warnings_(info_ || log_level == "WARNING"),
      live_(info_ && ::isatty(STDOUT_FILENO)),
      pause_(kFirstPause) {}

void Display::show(const std::vector<Dict>& events, double seconds) {
  for (const auto& event : events) {
    count(event);
    if (!wanted(control::text_of(event, "event"))) continue;
    if (auto line = describe(event)) {
      clear();
      std::printf("%s\n", line->c_str());
    }
  }
  if (info_) show_progress(seconds);
  std::fflush(stdout);
}

void Display::show_result(const Dict& outcome) {
  clear();
  live_ = false;
  if (info_) std::printf("%s", result_table(outcome).c_str());
  std::fflush(stdout);
}

bool Display::wanted(const std::string& kind) const {
  bool always = kind == "output" || kind == "worker_failed" || kind == "attempt_failed" || kind == "stop_requested";
  const bool warning = kind == "warning" || kind == "hang_detected" || kind == "preemption_announced";
  return always || (warning ? warnings_ : info_);
}

void Display::count(const Dict& event) {
  const std::string kind = control::text_of(event, "event");
  if (kind == "attempt_started") {
    attempt_ = control::int_of(event, "attempt");
    workers_ = control::int_of(event, "num_workers");
  } else if (kind == "report" && control::int_of(event, "rank") == 0) {
    reports_ = control::int_of(event, "index") + 1;
    if (const Dict* metrics = control::dict_of(event, "metrics")) metrics_ = *metrics;
    data_rate_.count(event);
  }
}

std::string Display::progress(double seconds) const {
  std::string line = fmt::format("{:.1f} s", seconds);
  if (attempt_ > 0) line += fmt::format("  attempt {}", attempt_);
  line += "  " + base::count_of(static_cast<std::size_t>(workers_), "worker");
  line += "  " + base::count_of(static_cast<std::size_t>(reports_), "report");
  std::size_t shown = 0;
  for (const auto& [name, value] : metric_rows(metrics_)) {
    if (++shown > kShownMetrics) break;
    line += fmt::format("  {} {}", name, value);
  }
  if (!data_rate_.text().empty()) line += "  " + data_rate_.text();
  return line;
}

void Display::show_progress(double seconds) {
  if (live_) {
    // A line that wraps could not be drawn over.
    std::printf("\r\033[K%s", progress(seconds).substr(0, terminal_width() - 1).c_str());
    drawn_ = true;
  } else if (reports_ != reports_shown_ && seconds >= next_line_) {
    std::printf("%s\n", progress(seconds).c_str());
    reports_shown_ = reports_;
    next_line_ = seconds + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }
}

void Display::clear() {
  if (drawn_) std::printf("\r\033[K");
  drawn_ = false;
}

}  // namespace trireme::api
