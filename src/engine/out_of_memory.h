#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"

// Whether the kernel ended a process for want of memory. A SIGKILL does not say who sent it, but two others do: the
// counters of the process's memory cgroup, and the kernel's log where it may be read. Used by one thread.

namespace trireme::engine {

struct KernelFiles {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroups = "/sys/fs/cgroup";
  std::filesystem::path log = "/dev/kmsg";
};

// How many processes of one cgroup the kernel has ended.
struct OomCounter {
  std::filesystem::path file;
  std::string group;
  std::uint64_t kills = 0;
  std::uint64_t explained = 0;  // of those, how many were known when this was read
};

class OutOfMemory {
 public:
  // What the kernel logs from now on counts.
  explicit OutOfMemory(KernelFiles files = {});

  // To be called right after the process has started, and kept for evidence().
  std::vector<OomCounter> counters(int pid);
  // For a process that ended by a SIGKILL that was not ours: what shows that it was the kernel's; empty: nothing does.
  std::string evidence(int pid, const std::vector<OomCounter>& at_start);

 private:
  void read_log();

  KernelFiles files_;
  base::Fd log_;                                              // invalid where it may not be read or names other pids
  std::map<int, std::string> killed_;                         // lines of the log by pid
  std::map<std::filesystem::path, std::uint64_t> explained_;  // kills of a counter that belong to a known process
};

}  // namespace trireme::engine
