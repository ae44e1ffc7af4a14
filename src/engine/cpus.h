#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trireme::engine {

// The number of CPUs that this process may use, given its affinity and its control group.
double usable_cpus();

// The tightest CPU quota between the control group and the root, in CPUs. `membership` is the text of
// /proc/self/cgroup, and `root` is the mount point of the control groups. Supports cgroup v1 and v2.
std::optional<double> cpu_quota(const std::string& membership, const std::filesystem::path& root);

}  // namespace trireme::engine
