#include "device_bytes.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <mutex>

#include "trireme/torch/tensor.h"

// Uses libtorch's device-independent interface, to avoid the CUDA headers.

namespace trireme::torch::detail {
namespace {

// A separate stream for the copies of each device, for the lifetime of the process.
c10::Stream copy_stream(const c10::impl::VirtualGuardImpl& interface, c10::Device device) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(device.type(), device.index());
  auto found = streams.find(key);
  if (found == streams.end()) found = streams.emplace(key, interface.getStreamFromGlobalPool(device)).first;
  return found->second;
}

struct HostCopy {
  at::Tensor from;
  void* to;
};

// Returns before the copies are complete; the event completes with them.
c10::Event start_copies(c10::Device device, const std::vector<HostCopy>& copies) {
  const c10::impl::VirtualGuardImpl interface(device.type());
  const c10::Stream stream = copy_stream(interface, device);
  // The values are those that the training has computed so far.
  c10::Event computed(device.type());
  computed.record(interface.getStream(device));
  computed.block(stream);
  const at::NoGradGuard no_grad;
  const c10::StreamGuard guard(stream);
  for (const auto& copy : copies) {
    at::from_blob(copy.to, copy.from.sizes(), copy.from.options().device(at::kCPU)).copy_(copy.from, true);
  }
  c10::Event copied(device.type());
  copied.record(stream);
  return copied;
}

class TorchDeviceBytes final : public DeviceBytes {
 public:
  explicit TorchDeviceBytes(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  std::string copy_to_host(const std::vector<Copy>& copies) const override {
    try {
      std::map<std::string, std::vector<HostCopy>> by_device;
      for (const auto& copy : copies) {
        const at::Tensor& tensor = static_cast<const TorchDeviceBytes&>(*copy.from).tensor_;
        if (tensor.numel() > 0) by_device[tensor.device().str()].push_back({tensor, copy.to});
      }
      std::vector<c10::Event> copied;
      for (const auto& [name, group] : by_device) copied.push_back(start_copies(group.front().from.device(), group));
      for (auto& event : copied) event.synchronize();
    } catch (const std::exception& failed) {  // libtorch's
      return failed.what();
    }
    return "";
  }

  // Registers the memory with the device's driver, which otherwise copies through memory of its own. The function is
  // that of the runtime that libtorch has loaded.
  std::shared_ptr<void> pin(void* memory, std::size_t size) const override {
    using Register = int (*)(void*, std::size_t, unsigned);
    using Unregister = int (*)(void*);
    for (const auto& [name, opposite] :
         {std::pair("cudaHostRegister", "cudaHostUnregister"), std::pair("hipHostRegister", "hipHostUnregister")}) {
      const auto add = reinterpret_cast<Register>(::dlsym(RTLD_DEFAULT, name));
      const auto remove = reinterpret_cast<Unregister>(::dlsym(RTLD_DEFAULT, opposite));
      if (add == nullptr || remove == nullptr || !(tensor_.is_cuda() || tensor_.is_privateuseone())) continue;
      if (const int error = add(memory, size, 0); error != 0) {
        std::fprintf(stderr,
                     "could not register %zu bytes of host memory for copies from %s (%s: error %d): snapshots take "
                     "longer; check the limit of locked memory (ulimit -l)\n",
                     size, tensor_.device().str().c_str(), name, error);
        return nullptr;
      }
      return {memory, remove};
    }
    return nullptr;
  }

 private:
  at::Tensor tensor_;
};

bool has_streams(c10::Device device) { return device.is_cuda() || device.is_xpu() || device.is_privateuseone(); }

}  // namespace

Tensor state_tensor(const at::Tensor& tensor) {
  if (!has_streams(tensor.device())) return from_torch(tensor);
  // An empty tensor on the CPU has the same type and layout, which from_torch() checks.
  const Tensor like = from_torch(at::empty({0}, tensor.options().device(at::kCPU).requires_grad(false)));
  return Tensor::on_device(like.dtype(), tensor.sizes().vec(),
                           std::make_shared<TorchDeviceBytes>(tensor.detach().resolve_conj().resolve_neg()));
}

}  // namespace trireme::torch::detail
