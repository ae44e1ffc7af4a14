#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/process.h"
#include "unit/temp_dir.h"

namespace trireme::engine::testing {

namespace fs = std::filesystem;

// Far more than any test needs; a test that reaches it has failed.
inline constexpr std::chrono::seconds kPatience{300};

using tests::TempDir;

inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// Empty if the file does not exist, or if a process exits while its file in /proc is read: that read fails, and a
// stream's operator catches the exception of its buffer.
inline std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline bool ended(const base::Fd& pidfd) {
  pollfd fd{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&fd, 1, std::chrono::milliseconds(kPatience).count()) == 1;
}

// No process has this pid, or only a zombie.
inline bool gone(int pid) {
  const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(')');
  return name_end == std::string::npos || stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X';
}

inline std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

inline std::map<std::string, std::string> plain_env() { return {{"PATH", "/usr/local/bin:/usr/bin:/bin"}}; }

// A worker that is a shell script; its log is <folder>/log.
inline ProcessSpec shell(const fs::path& folder, const std::string& script) {
  return {.label = "rank 0",
          .argv = {"/bin/sh", "-c", script},
          .env = plain_env(),
          .cwd = folder.string(),
          .log_path = (folder / "log").string(),
          .ticket = "{}",
          .python = {}};
}

// Waits for an integer that a worker writes to a file, such as the pid of its child.
inline int written_number(const fs::path& path) {
  int number = 0;
  REQUIRE(eventually([&] {
    const std::string text = read_text(path);
    if (text.empty() || text.back() != '\n') return false;
    number = std::stoi(text);
    return true;
  }));
  return number;
}

// Collects the events of gangs. Thread-safe.
class EventBook {
 public:
  EventHandler handler() {
    return [this](EngineEvent event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      arrived_.notify_all();
    };
  }

  // The next event of that kind from here on; events of other kinds are skipped.
  template <typename T>
  T next() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const bool in_time = arrived_.wait_for(lock, kPatience, [&] { return read_ < events_.size(); });
      REQUIRE_MESSAGE(in_time, "no such event came");
      EngineEvent& event = events_[read_++];
      if (auto* wanted = std::get_if<T>(&event)) return *wanted;
    }
  }

  template <typename T>
  int count() const {
    const std::lock_guard lock(mutex_);
    int found = 0;
    for (const auto& event : events_) found += std::holds_alternative<T>(event) ? 1 : 0;
    return found;
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<EngineEvent> events_;
  std::size_t read_ = 0;
};

}  // namespace trireme::engine::testing
