#include "worker/busy_threads.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;

// The threads of gloo and NCCL wake up every few milliseconds, and those of CUDA poll: they never start anything
// themselves.
constexpr std::array<std::string_view, 4> kTransports = {"trireme-", "gloo_tcp_loop", "pt_nccl_", "cuda-"};

struct Sight {
  std::string name;
  bool stands = false;
  std::string switches;  // number of context switches

  bool operator==(const Sight&) const = default;
};

// Empty if the thread has ended in the meantime: getline() reports it, std::istreambuf_iterator would throw.
std::string read_all(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

// Waits in a futex of this process without a timeout: only another thread of the process can wake it.
bool waits_for_a_thread(const std::string& call) {
  std::istringstream words(call);
  long number = -1;
  std::array<std::string, 4> arguments;
  if (!(words >> number)) return false;  // "running", or not shown by the kernel
  for (auto& argument : arguments) words >> argument;
  if (!words || number != SYS_futex) return false;
  const auto operation = std::stoul(arguments[1], nullptr, 16);
  const auto kind = operation & static_cast<unsigned long>(FUTEX_CMD_MASK);
  const bool waits = kind == FUTEX_WAIT || kind == FUTEX_WAIT_BITSET || kind == FUTEX_LOCK_PI;
  return waits && (operation & FUTEX_PRIVATE_FLAG) && arguments[3] == "0x0";
}

std::string switches_of(const std::string& status) {
  std::string text;
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("ctxt_switches") != std::string::npos) text += line + "\n";
  }
  return text;
}

std::map<int, Sight> look(const std::set<int>& blocked) {
  std::map<int, Sight> seen;
  std::error_code failed;
  for (const auto& task : fs::directory_iterator("/proc/self/task", failed)) {
    const int tid = std::stoi(task.path().filename().string());
    if (tid == static_cast<int>(::syscall(SYS_gettid)) || blocked.contains(tid)) continue;
    Sight sight;
    sight.name = read_all(task.path() / "comm");
    if (sight.name.ends_with('\n')) sight.name.pop_back();
    if (std::any_of(kTransports.begin(), kTransports.end(),
                    [&](std::string_view transport) { return sight.name.starts_with(transport); })) {
      continue;
    }
    sight.switches = switches_of(read_all(task.path() / "status"));
    sight.stands = waits_for_a_thread(read_all(task.path() / "syscall"));
    seen.emplace(tid, std::move(sight));
  }
  return seen;
}

}  // namespace

std::vector<std::string> busy_threads(const std::set<int>& blocked) {
  // A scan takes time, so there are two: a thread that was blocked when it was scanned may have been woken by one that
  // was not scanned yet. A thread that is blocked in both scans and was not switched to in between was blocked all the
  // time.
  const auto first = look(blocked);
  const auto second = look(blocked);
  std::vector<std::string> busy;
  for (const auto& [tid, sight] : second) {
    const auto before = first.find(tid);
    if (!sight.stands || before == first.end() || before->second != sight) {
      busy.push_back(fmt::format("{} ({})", sight.name, tid));
    }
  }
  return busy;
}

}  // namespace trireme::worker
