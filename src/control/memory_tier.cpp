#include "control/memory_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace trireme::control {

void MemoryTier::hold(std::int64_t index, int pid, const Dict& descriptors) {
  for (const auto& [path, descriptor] : descriptors) {
    const auto* number = descriptor.get_if<std::int64_t>();
    if (!number) continue;
    base::Fd file(::open(fmt::format("/proc/{}/fd/{}", pid, *number).c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid()) held_[index][path] = std::move(file);
  }
}

void MemoryTier::committed(std::int64_t index) {
  committed_ = index;
  held_.erase(held_.begin(), held_.lower_bound(index));
}

void MemoryTier::forget_uncommitted() { held_.erase(held_.upper_bound(committed_), held_.end()); }

Dict MemoryTier::files(std::int64_t index) const {
  Dict files;
  auto it = held_.find(index);
  if (it == held_.end() || index != committed_) return files;
  for (const auto& [path, file] : it->second) files[path] = fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
  return files;
}

}  // namespace trireme::control
