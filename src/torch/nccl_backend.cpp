#include "nccl_backend.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#if defined(USE_C10D_NCCL) && __has_include(<nccl.h>)
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#define TRIREME_HAS_NCCL
#endif

#include <stdexcept>

namespace trireme::torch::detail {

#ifdef TRIREME_HAS_NCCL

std::string no_nccl() { return {}; }

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

NcclGroupCall::NcclGroupCall(const std::vector<c10::intrusive_ptr<c10d::ProcessGroup>>& groups) {
  for (const auto& group : groups) {
    if (!group->hasBackends()) continue;
    for (const auto& device : group->getDeviceTypes()) {
      auto backend = group->getBackend(device.type());
      if (backend->getBackendName() == "nccl") backend_ = std::move(backend);
    }
  }
  if (backend_) static_cast<c10d::ProcessGroupNCCL&>(*backend_).groupStart();
}

NcclGroupCall::~NcclGroupCall() {
  if (backend_) static_cast<c10d::ProcessGroupNCCL&>(*backend_).groupEnd();
}

#else

std::string no_nccl() {
#ifdef USE_C10D_NCCL
  return "nccl.h was not found when Trireme was built; install NCCL's headers and build Trireme again";
#else
  return "libtorch was built without NCCL";
#endif
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                            std::chrono::milliseconds) {
  throw std::logic_error("NCCL is not available: " + no_nccl());
}

NcclGroupCall::NcclGroupCall(const std::vector<c10::intrusive_ptr<c10d::ProcessGroup>>&) {}
NcclGroupCall::~NcclGroupCall() = default;

#endif

}  // namespace trireme::torch::detail
