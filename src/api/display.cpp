#include "api/display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "api/describe.h"
#include "base/dict_fields.h"
#include "base/text.h"

namespace trireme::api {
namespace {

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
    progress_.count(event);
    if (!wanted(base::text_of(event, "event"))) continue;
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

void Display::show_progress(double seconds) {
  if (live_) {
    // A wrapped line could not be overwritten.
    constexpr std::size_t kDots = 3;
    const std::size_t width = std::max(terminal_width(), kDots + 2) - kDots - 1;
    std::printf("\r\033[K%s", shortened(progress_.text(seconds), width).c_str());
    drawn_ = true;
  } else if (progress_.reports() != reports_shown_ && seconds >= next_line_) {
    std::printf("%s\n", progress_.text(seconds).c_str());
    reports_shown_ = progress_.reports();
    next_line_ = seconds + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }
}

void Display::clear() {
  if (drawn_) std::printf("\r\033[K");
  drawn_ = false;
}

}  // namespace trireme::api
