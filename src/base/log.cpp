#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <string>

namespace trireme::base {
namespace {

// A private logger, not registered with spdlog: the host program's spdlog setup stays unchanged.
spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("trireme", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_pattern("trireme %l: %v");
    made.flush_on(spdlog::level::info);
    return made;
  }();
  return instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

bool set_log_level(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (upper == "DEBUG") set_log_level(LogLevel::kDebug);
  else if (upper == "INFO") set_log_level(LogLevel::kInfo);
  else if (upper == "WARNING") set_log_level(LogLevel::kWarning);
  else if (upper == "ERROR" || upper == "CRITICAL") set_log_level(LogLevel::kError);
  else return false;
  return true;
}

void log_line(LogLevel level, std::string_view line) { logger().log(to_spdlog(level), line); }

}  // namespace trireme::base
