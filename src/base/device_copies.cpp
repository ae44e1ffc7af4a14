#include "base/device_copies.h"

#include <utility>

namespace trireme::base {

void DeviceCopies::add(std::shared_ptr<const DeviceBytes> from, void* to) {
  const DeviceBytes& kind = *from;
  copies_[typeid(kind)].push_back({from.get(), to});
  held_.push_back(std::move(from));
}

std::string DeviceCopies::run(const std::function<void(const DeviceBytes&)>& prepare) const {
  for (const auto& [kind, copies] : copies_) {
    const DeviceBytes& first = *copies.front().from;
    if (prepare) prepare(first);
    if (auto failure = first.copy_to_host(copies); !failure.empty()) return failure;
  }
  return {};
}

}  // namespace trireme::base
