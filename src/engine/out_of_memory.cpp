#include "engine/out_of_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace trireme::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKilled = "Killed process ";
// The inode number of the initial pid namespace, PROC_PID_INIT_INO.
constexpr std::string_view kFirstNamespace = "pid:[4026531836]";

// The line "oom_kill 3" of memory.events and memory.oom_control.
std::optional<std::uint64_t> read_kills(const fs::path& path) {
  std::ifstream file(path);
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return {};
}

// In a container the path may be the host's and not exist here; then the mount itself, or a suffix of the path, is the
// group.
std::optional<OomCounter> find_counter(const fs::path& mount, const std::string& group,
                                       const std::vector<std::string>& names) {
  if (group.find("..") != std::string::npos) return {};  // outside of what this process can see
  for (fs::path relative = fs::path(group).relative_path();; relative = relative.parent_path()) {
    for (const auto& name : names) {
      const fs::path file = mount / relative / name;
      if (const auto kills = read_kills(file)) return OomCounter{.file = file, .group = group, .kills = *kills};
    }
    if (relative.empty()) return {};
  }
}

// From "Memory cgroup out of memory: Killed process 4711 (python) total-vm:..."; without the prefix before Linux 4.19.
std::optional<int> killed_pid(std::string_view line) {
  const auto at = line.find(kKilled);
  if (at == std::string_view::npos || line.find("total-vm:", at) == std::string_view::npos) return {};
  const std::string_view rest = line.substr(at + kKilled.size());
  int pid = 0;
  const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
  if (failure != std::errc() || end == rest.data() + rest.size() || *end != ' ') return {};
  return pid;
}

bool in_first_namespace(const fs::path& proc) {
  std::error_code failure;
  return fs::read_symlink(proc / "self/ns/pid", failure).string() == kFirstNamespace;
}

}  // namespace

OutOfMemory::OutOfMemory(KernelFiles files) : files_(std::move(files)) {
  // The log uses pids of the initial namespace. In another one a match would be a coincidence.
  if (!in_first_namespace(files_.proc)) return;
  log_ = base::Fd(::open(files_.log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (log_.valid() && ::lseek(log_.get(), 0, SEEK_END) < 0) log_.reset();
}

std::vector<OomCounter> OutOfMemory::counters(int pid) {
  // Earlier log lines with this pid are about another process.
  read_log();
  killed_.erase(pid);
  std::vector<OomCounter> found;
  std::ifstream membership(files_.proc / std::to_string(pid) / "cgroup");
  for (std::string line; std::getline(membership, line);) {
    // "4:memory:/group" in version 1, "0::/group" in version 2. The name of the group may contain colons.
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = base::split(line.substr(first + 1, second - first - 1), ',');
    const std::string group = line.substr(second + 1);
    std::optional<OomCounter> counter;
    if (line.starts_with("0::")) {
      counter = find_counter(files_.cgroups, group, {"memory.events.local", "memory.events"});
    } else if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      counter = find_counter(files_.cgroups / "memory", group, {"memory.oom_control"});
    }
    if (!counter) continue;
    counter->explained = explained_[counter->file];
    found.push_back(*std::move(counter));
  }
  return found;
}

std::string OutOfMemory::evidence(int pid, const std::vector<OomCounter>& at_start) {
  std::string text;
  for (const auto& counter : at_start) {
    const auto now = read_kills(counter.file);
    if (!now || *now <= counter.kills) continue;
    // A kill that is attributed to another process does not explain this one.
    std::uint64_t& explained = explained_[counter.file];
    if (*now - counter.kills <= explained - counter.explained) continue;
    ++explained;
    text = fmt::format("oom_kill of its cgroup ({}) rose from {} to {}", counter.group, counter.kills, *now);
  }
  read_log();
  if (const auto line = killed_.find(pid); line != killed_.end()) {
    text = "kernel log: " + line->second;
    killed_.erase(line);
  }
  return text;
}

void OutOfMemory::read_log() {
  if (!log_.valid()) return;
  std::array<char, 8192> record;
  for (;;) {
    const auto got = ::read(log_.get(), record.data(), record.size());
    // Records were overwritten before they were read.
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (got <= 0) return;
    const std::string_view text(record.data(), static_cast<std::size_t>(got));
    for (const auto& line : base::split(text, '\n')) {
      // "3,1234,5678901,-;the message"; lines that begin with a space are continuations.
      const auto message = line.find(';');
      if (message == std::string::npos || line.starts_with(' ')) continue;
      if (const auto pid = killed_pid(line)) killed_[*pid] = line.substr(message + 1);
    }
  }
}

}  // namespace trireme::engine
