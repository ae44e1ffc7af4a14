#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "cancel.h"
#include "nccl_backend.h"
#include "trireme/cancel.h"
#include "trireme/context.h"
#include "trireme/store.h"
#include "trireme/torch/torch.h"

namespace trireme::torch {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::chrono::milliseconds timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create(timeout);
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    options->devices.push_back(Gloo::createDeviceForInterface(interface));
  } else if (context().num_nodes == 1) {
    // The host name may resolve to an unreachable address.
    options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options->devices.push_back(Gloo::createDefaultDevice());
  }
  return c10::make_intrusive<Gloo>(store, context().world_rank, context().world_size, options);
}

// Keys of concurrent groups must not collide: rank 0 numbers the groups.
std::string agree_on_prefix() {
  const bool first = context().world_rank == 0;
  const std::string mine = first ? std::to_string(trireme::store::add("torch/groups", 1)) : std::string();
  return "torch/group_" + collective::broadcast_from_rank_zero(mine);
}

std::chrono::milliseconds timeout_of(const ProcessGroupOptions& options) {
  if (!(options.timeout_s > 0)) {
    throw std::invalid_argument("timeout_s: expected a positive number of seconds, got " +
                                std::to_string(options.timeout_s));
  }
  // Longer ones would overflow when c10d converts them to nanoseconds.
  const std::chrono::duration<double> timeout(std::min(options.timeout_s, 1e9));
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(timeout), std::chrono::milliseconds(1));
}

void warn_of_gloo() {
  static bool warned = false;
  if (std::exchange(warned, true) || context().world_rank != 0) return;
  std::fprintf(stderr,
               "trireme: warning: NCCL is not available, so tensors on GPUs are exchanged with Gloo, which is much "
               "slower: %s\n",
               detail::no_nccl().c_str());
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> new_process_group(const ProcessGroupOptions& options) {
  const auto timeout = timeout_of(options);
  set_collective_timeout(std::chrono::duration<double>(timeout).count());
  const auto all = store();
  all->setTimeout(timeout);
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(agree_on_prefix(), all);
  const int rank = context().world_rank, size = context().world_size;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, rank, size);
  const auto gloo = make_gloo(c10::make_intrusive<c10d::PrefixStore>("gloo", prefixed), timeout);
  // A short function may return, and close its connections, while another rank is still connecting.
  collective::barrier();
  group->setBackend(c10::DeviceType::CPU, BackendType::GLOO, gloo);
  group->setDefaultBackend(BackendType::GLOO);
  const c10::Device device = get_device();
  detail::clear_on_interrupt(device);
  if (device.is_cuda()) {
    // NCCL refuses two ranks on one device, which a fraction of a GPU and MIG devices imply.
    const bool whole = context().whole_gpus;
    const bool nccl = whole && detail::no_nccl().empty();
    if (nccl) {
      const auto nccl_store = c10::make_intrusive<c10d::PrefixStore>("nccl", prefixed);
      group->setBackend(c10::DeviceType::CUDA, BackendType::NCCL, detail::make_nccl(nccl_store, rank, size, timeout));
    } else {
      if (whole) warn_of_gloo();
      group->setBackend(c10::DeviceType::CUDA, BackendType::GLOO, gloo);
    }
  }
  abort_on_cancel(group);
  return group;
}

}  // namespace trireme::torch
