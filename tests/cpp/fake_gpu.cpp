#include "fake_gpu.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

// Something that happens once.
class Moment {
 public:
  void come() {
    const std::lock_guard lock(mutex_);
    has_come_ = true;
    changed_.notify_all();
  }
  void await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_come_; });
  }
  bool has_come() {
    const std::lock_guard lock(mutex_);
    return has_come_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_come_ = false;
};

// Does its work in order, on a separate thread.
class Worker {
 public:
  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }

 private:
  void run() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !queue_.empty(); });
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;  // never ends: the device is leaked
};

struct Device {
  std::mutex mutex;
  std::condition_variable waited;
  FakeGpuCounts counts = {};
  std::map<c10::StreamId, std::unique_ptr<Worker>> streams;
  c10::StreamId next_stream = 1;
  std::map<const char*, std::size_t> registered;
  std::shared_ptr<Moment> gate;

  Worker& worker(c10::StreamId id) {
    const std::lock_guard lock(mutex);
    auto& found = streams[id];
    if (!found) found = std::make_unique<Worker>();
    return *found;
  }
  void count_wait() {
    const std::lock_guard lock(mutex);
    ++counts.waits;
    waited.notify_all();
  }
  bool is_registered(const void* memory) {
    const std::lock_guard lock(mutex);
    auto after = registered.upper_bound(static_cast<const char*>(memory));
    if (after == registered.begin()) return false;
    --after;
    return static_cast<const char*>(memory) < after->first + after->second;
  }
};

Device& device() {
  static auto* made = new Device;  // leaked: its threads run until the process ends
  return *made;
}

thread_local c10::StreamId current_stream = 0;

void await_stream(c10::StreamId id) {
  auto reached = std::make_shared<Moment>();
  device().worker(id).enqueue([reached] { reached->come(); });
  device().count_wait();
  reached->await();
}

using Event = std::shared_ptr<Moment>;

c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return stream(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getNewStream(c10::Device, int) const override {
    const std::lock_guard lock(device().mutex);
    return stream(device().next_stream++);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device to, bool) const override { return getNewStream(to, 0); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream(std::exchange(current_stream, next.id()));
  }
  void record(void** event, const c10::Stream& on, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    auto& held = *static_cast<Event*>(*event);
    held = std::make_shared<Moment>();
    device().worker(on.id()).enqueue([moment = held] { moment->come(); });
  }
  void block(void* event, const c10::Stream& on) const override {
    if (event == nullptr) return;
    device().worker(on.id()).enqueue([moment = *static_cast<Event*>(event)] { moment->await(); });
  }
  bool queryEvent(void* event) const override { return event == nullptr || (*static_cast<Event*>(event))->has_come(); }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    device().count_wait();
    (*static_cast<Event*>(event))->await();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void synchronizeStream(const c10::Stream& on) const override { await_stream(on.id()); }
  void synchronizeDevice(c10::DeviceIndex) const override { await_stream(0); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct FakeAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    void* memory = size == 0 ? nullptr : std::malloc(size);
    return {memory, memory, &std::free, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t size) const override { std::memcpy(to, from, size); }
};
FakeAllocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

void free_pinned(void* memory) {
  {
    const std::lock_guard lock(device().mutex);
    device().registered.erase(static_cast<const char*>(memory));
  }
  std::free(memory);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    void* memory = std::malloc(std::max<std::size_t>(1, size));
    const std::lock_guard lock(device().mutex);
    device().registered[static_cast<const char*>(memory)] = size;
    return {memory, memory, &free_pinned, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t size) const override { std::memcpy(to, from, size); }
};
PinnedAllocator pinned_allocator;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  bool isPinnedPtr(const void* memory) const override { return device().is_registered(memory); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
};

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// The same memory, as a tensor of the CPU.
at::Tensor as_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
}

// Every copy that involves the device.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool pageable = to.is_cpu() && !device().is_registered(to.data_ptr());
  if (to.is_cpu()) {
    const std::lock_guard lock(device().mutex);
    ++device().counts.copies_to_host;
    device().counts.copies_to_pageable += pageable ? 1 : 0;
    device().counts.copies_on_first_stream += current_stream == 0 ? 1 : 0;
  }
  // The tensors are held: a real device's allocator would not reuse the memory before the stream has done its work.
  device().worker(current_stream).enqueue([from, to] {
    const at::NoGradGuard no_grad;
    as_host(to).copy_(as_host(from));
  });
  if (!non_blocking || pageable) await_stream(current_stream);
  return to;
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  device().worker(current_stream).enqueue([self, value] { as_host(self).fill_(value); });
  return self;
}

at::Tensor& zero(at::Tensor& self) { return fill(self, 0); }

void record_stream(at::Tensor&, c10::Stream) {
  const std::lock_guard lock(device().mutex);
  ++device().counts.recorded;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("fill_.Scalar", &fill);
  library.impl("zero_", &zero);
  library.impl("view", &at::native::view);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("record_stream", &record_stream);
}

const bool hooked = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

FakeGpuCounts fake_gpu_counts() {
  const std::lock_guard lock(device().mutex);
  return device().counts;
}

void fake_gpu_close_gate() {
  auto gate = std::make_shared<Moment>();
  {
    const std::lock_guard lock(device().mutex);
    device().gate = gate;
  }
  device().worker(current_stream).enqueue([gate] { gate->await(); });
}

void fake_gpu_open_gate() {
  const std::lock_guard lock(device().mutex);
  if (device().gate) device().gate->come();
}

void fake_gpu_await_waits(std::int64_t count) {
  std::unique_lock lock(device().mutex);
  device().waited.wait(lock, [&] { return device().counts.waits >= count; });
}

int cudaHostRegister(void* memory, std::size_t size, unsigned) {
  const std::lock_guard lock(device().mutex);
  ++device().counts.registered;
  device().registered[static_cast<const char*>(memory)] = size;
  return 0;
}

int cudaHostUnregister(void* memory) {
  const std::lock_guard lock(device().mutex);
  ++device().counts.unregistered;
  return device().registered.erase(static_cast<const char*>(memory)) == 1 ? 0 : 1;
}
