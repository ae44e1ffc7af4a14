#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#if defined(USE_C10D_NCCL) && __has_include(<nccl.h>)
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#define TRIREME_HAS_NCCL
#endif

#include <cstdlib>

#include "trireme/context.h"
#include "trireme/store.h"
#include "trireme/torch/torch.h"

namespace trireme::torch {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store) {
  using Gloo = c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create();
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

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> new_process_group() {
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(agree_on_prefix(), store());
  const int rank = context().world_rank, size = context().world_size;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, rank, size);
  const auto gloo = make_gloo(c10::make_intrusive<c10d::PrefixStore>("gloo", prefixed));
  // A short function may return, and close its connections, while another rank is still connecting.
  collective::barrier();
  group->setBackend(c10::DeviceType::CPU, BackendType::GLOO, gloo);
  group->setDefaultBackend(BackendType::GLOO);
  if (get_device().is_cuda()) {
#ifdef TRIREME_HAS_NCCL
    // NCCL refuses two ranks on one device, as with fractional GPUs.
    const auto gpus = context().resources.find("GPU");
    if (gpus != context().resources.end() && gpus->second >= 1) {
      const auto nccl_store = c10::make_intrusive<c10d::PrefixStore>("nccl", prefixed);
      group->setBackend(c10::DeviceType::CUDA, BackendType::NCCL,
                        c10::make_intrusive<c10d::ProcessGroupNCCL>(nccl_store, rank, size));
      return group;
    }
#endif
    group->setBackend(c10::DeviceType::CUDA, BackendType::GLOO, gloo);
  }
  return group;
}

}  // namespace trireme::torch
