#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"

// Determines whether the kernel killed a process for lack of memory. A SIGKILL does not identify its sender, but the
// counters of the process's memory cgroup do, and so does the kernel log if it is readable. Used by one thread.

namespace trireme::engine {

struct KernelFiles {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroups = "/sys/fs/cgroup";
  std::filesystem::path log = "/dev/kmsg";
};

// The number of processes of one cgroup that the kernel has killed.
struct OomCounter {
  std::filesystem::path file;
  std::string group;
  std::uint64_t kills = 0;
  std::uint64_t explained = 0;  // kills that were already attributed to a process at that time
};

class OutOfMemory {
 public:
  // Considers kernel log lines from now on.
  explicit OutOfMemory(KernelFiles files = {});

  // Call it right after the process has started, and pass the result to evidence().
  std::vector<OomCounter> counters(int pid);
  // For a process killed by a SIGKILL that we did not send: evidence that the kernel sent it; empty: none.
  std::string evidence(int pid, const std::vector<OomCounter>& at_start);

 private:
  void read_log();

  KernelFiles files_;
  base::Fd log_;                                              // invalid if it is not readable or uses other pids
  std::map<int, std::string> killed_;                         // log lines by pid
  std::map<std::filesystem::path, std::uint64_t> explained_;  // kills of a counter that are attributed to a process
};

}  // namespace trireme::engine
