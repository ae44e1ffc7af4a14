#include "engine/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/text.h"

namespace trireme::engine {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "max 100000" and "-1 100000" set no limit.
std::optional<double> quota_of(const std::string& text) {
  std::istringstream words(text);
  double quota = 0.0;
  double period = 0.0;
  if (!(words >> quota >> period) || quota <= 0.0 || period <= 0.0) return {};
  return quota / period;
}

std::optional<double> tightest(const fs::path& mount, const std::string& group, bool version2) {
  std::optional<double> least;
  // Inside a container the path may be the host's and not exist here; then the mount itself is the group.
  for (fs::path relative = fs::path(group).relative_path();; relative = relative.parent_path()) {
    const fs::path folder = mount / relative;
    const auto quota =
        version2 ? quota_of(read_text(folder / "cpu.max"))
                 : quota_of(read_text(folder / "cpu.cfs_quota_us") + " " + read_text(folder / "cpu.cfs_period_us"));
    if (quota) least = std::min(least.value_or(*quota), *quota);
    if (relative.empty()) return least;
  }
}

double cpus_by_affinity() {
  // A plain cpu_set_t is too small for machines with more than 1024 CPUs.
  for (std::size_t count = 1024; count <= 1024 * 64; count *= 2) {
    const std::size_t size = CPU_ALLOC_SIZE(count);
    std::vector<cpu_set_t> set((size + sizeof(cpu_set_t) - 1) / sizeof(cpu_set_t));
    if (::sched_getaffinity(0, size, set.data()) == 0) return CPU_COUNT_S(size, set.data());
  }
  return static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

std::optional<double> cpu_quota(const std::string& membership, const fs::path& root) {
  std::optional<double> least;
  for (const auto& line : base::split(membership, '\n')) {
    const auto parts = base::split(line, ':');
    if (parts.size() < 3) continue;
    const auto controllers = base::split(parts[1], ',');
    const bool version2 = parts[0] == "0" && parts[1].empty();
    const bool version1 = std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end();
    if (!version1 && !version2) continue;
    const auto quota = tightest(version2 ? root : root / "cpu", parts[2], version2);
    if (quota) least = std::min(least.value_or(*quota), *quota);
  }
  return least;
}

double usable_cpus() {
  const double cpus = cpus_by_affinity();
  const auto quota = cpu_quota(read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota ? std::min(cpus, *quota) : cpus;
}

}  // namespace trireme::engine
