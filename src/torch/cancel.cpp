#include "cancel.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "nccl_backend.h"
#include "trireme/cancel.h"
#include "trireme/torch/torch.h"

namespace trireme::torch {
namespace {

// The groups of this process. Weak: a group ends with its last user.
struct Groups {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<c10d::ProcessGroup>> all;

  void add(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& each) { return each.expired(); });
    all.emplace_back(group);
  }

  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> alive() {
    const std::lock_guard lock(mutex);
    std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> found;
    for (const auto& each : all) {
      if (auto group = each.lock()) found.push_back(std::move(group));
    }
    return found;
  }
};

// Never destroyed: a thread of a process that exits may still use it.
Groups& groups() {
  static auto* const all = new Groups;
  return *all;
}

}  // namespace

void abort_on_cancel(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  groups().add(group);
  // Every hook aborts all groups: the aborts of NCCL's communicators must be one group call, or they may wait for each
  // other. Further aborts of a group have no effect.
  on_cancel([] {
    const auto alive = groups().alive();
    const detail::NcclGroupCall call(alive);
    for (const auto& each : alive) each->abort();
  });
}

void detail::clear_on_interrupt(c10::Device device) {
  if (device.is_cpu()) return;
  on_interrupt([device] {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
    at::accelerator::emptyCache();
#endif
  });
}

}  // namespace trireme::torch
