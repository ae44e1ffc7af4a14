#include "trireme/torch/transfer.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "expect_training.h"
#include "trireme/torch/torch.h"

// Uses libtorch's device-independent interface, to avoid the CUDA headers.

namespace trireme::torch::detail {

c10::Device device_of_batches(bool move_to_device) {
  expect_training("prepare_data_loader");
  return move_to_device ? get_device() : c10::Device(c10::kCPU);
}

struct Transfer::Stream {
  explicit Stream(c10::Device device)
      : interface(device.type()), stream(interface.getStreamFromGlobalPool(device)), copied(device.type()) {}

  c10::impl::VirtualGuardImpl interface;
  c10::Stream stream;
  c10::Event copied;
};

Transfer::Transfer(c10::Device device, bool ahead) : device_(device) {
  if (ahead && !device_.is_cpu()) stream_ = std::make_unique<Stream>(device_);
}

Transfer::~Transfer() = default;

void Transfer::aside(const std::function<void()>& act) {
  if (!stream_) return act();
  const c10::StreamGuard guard(stream_->stream);
  act();
  stream_->copied.record(stream_->stream);
}

void Transfer::copy(at::Tensor& tensor) const {
  // A copy from unpinned memory would block the thread.
  const bool pin = stream_ && tensor.is_cpu() && !tensor.is_pinned();
  tensor = (pin ? tensor.pin_memory() : tensor).to(device_, /*non_blocking=*/true);
}

void Transfer::wait() { stream_->copied.block(stream_->interface.getStream(device_)); }

// The memory was allocated on the other stream; it must not be reused while this stream still reads it.
void Transfer::used_here(at::Tensor& tensor) const { tensor.record_stream(stream_->interface.getStream(device_)); }

}  // namespace trireme::torch::detail
