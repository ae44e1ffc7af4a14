#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trireme::engine {

// How many CPUs this process may use: what its affinity and its control group leave of the machine.
double usable_cpus();

// The tightest CPU quota on the way from the control group up to the root, in CPUs. `membership` is the text of
// /proc/self/cgroup, `root` where control groups are mounted; both versions of control groups are understood.
std::optional<double> cpu_quota(const std::string& membership, const std::filesystem::path& root);

}  // namespace trireme::engine
