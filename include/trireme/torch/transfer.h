#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>

#include "trireme/export.h"

// Copies batches to the device.

namespace trireme::torch::detail {

TRIREME_API c10::Device device_of_batches(bool move_to_device);

// The tensors in an Example, in tuples and in containers.
template <typename T, typename Act>
void each_tensor(T& value, const Act& act) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    act(value);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... each) { (each_tensor(each, act), ...); }, value);
  } else if constexpr (requires { value.begin(), value.end(); }) {
    for (auto& each : value) each_tensor(each, act);
  } else if constexpr (requires { value.data, value.target; }) {
    each_tensor(value.data, act);
    each_tensor(value.target, act);
  } else if constexpr (requires { value.data; }) {
    each_tensor(value.data, act);
  }
}

// Copies one batch at a time, on a separate stream; on the current stream if `ahead` is false; not at all if the device
// is the CPU, where loaders create batches.
class TRIREME_API Transfer {
 public:
  Transfer(c10::Device device, bool ahead);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  template <typename Batch>
  void begin(Batch& batch) {
    if (!device_.is_cpu()) aside([&] { each_tensor(batch, [this](at::Tensor& tensor) { copy(tensor); }); });
  }
  // The current stream waits for the copy; the thread does not.
  template <typename Batch>
  void end(Batch& batch) {
    if (!stream_) return;
    wait();
    each_tensor(batch, [this](at::Tensor& tensor) { used_here(tensor); });
  }

 private:
  struct Stream;

  void aside(const std::function<void()>& act);
  void copy(at::Tensor& tensor) const;
  void wait();
  void used_here(at::Tensor& tensor) const;

  c10::Device device_;
  std::unique_ptr<Stream> stream_;  // null without `ahead`
};

}  // namespace trireme::torch::detail
