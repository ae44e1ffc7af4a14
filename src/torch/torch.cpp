#include "trireme/torch/torch.h"

#include <algorithm>
#include <thread>

#include "expect_training.h"

namespace trireme::torch {
namespace {

std::string to_string(const std::vector<std::uint8_t>& bytes) { return std::string(bytes.begin(), bytes.end()); }
std::vector<std::uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

// A c10d store on top of the gang's store. Has no state of its own except the timeout, so a clone is another handle.
class ControlPlaneStore final : public c10d::Store {
 public:
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    call([&] { trireme::store::set(key, to_string(value)); });
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    return call([&] { return to_bytes(trireme::store::get(key, getTimeout())); });
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return call([&] { return trireme::store::add(key, value); });
  }
  bool deleteKey(const std::string& key) override {
    return call([&] { return trireme::store::erase(key); });
  }
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    return call([&] { return to_bytes(trireme::store::compare_set(key, to_string(expected), to_string(desired))); });
  }
  bool check(const std::vector<std::string>& keys) override {
    return call([&] { return trireme::store::contains(keys); });
  }
  std::int64_t getNumKeys() override {
    return call([&] { return trireme::store::size(); });
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    call([&] { trireme::store::wait(keys, timeout); });
  }
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override {
    call([&] { trireme::store::append(key, to_string(value)); });
  }
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    std::vector<std::vector<std::uint8_t>> values;
    call([&] {
      for (const auto& value : trireme::store::multi_get(keys, getTimeout())) values.push_back(to_bytes(value));
    });
    return values;
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override {
    TORCH_CHECK_VALUE(keys.size() == values.size(), "multiSet: ", keys.size(), " keys, ", values.size(), " values");
    for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
  }
  bool hasExtendedApi() const override { return true; }
  c10::intrusive_ptr<Store> clone() override {
    auto copy = c10::make_intrusive<ControlPlaneStore>();
    copy->function_thread_ = function_thread_;
    copy->setTimeout(getTimeout());
    return copy;
  }

 private:
  // Threads of c10d, such as NCCL's watchdog, handle only a std::exception: Interrupted would end the process there.
  template <typename Call>
  auto call(const Call& call) const -> decltype(call()) {
    try {
      return call();
    } catch (const Interrupted&) {
      if (std::this_thread::get_id() == function_thread_) throw;
      C10_THROW_ERROR(DistStoreError, "this attempt is over");
    }
  }

  std::thread::id function_thread_ = std::this_thread::get_id();
};

}  // namespace

namespace detail {

void expect_training(const char* caller) {
  try {
    context();
  } catch (const std::runtime_error&) {
    throw std::runtime_error(
        std::string(caller) +
        "() cannot be used outside of a training function; call it in the function passed to a trainer");
  }
}

}  // namespace detail

c10::Device get_device() {
  const auto& own = context().gpus;
  const auto& visible = context().visible_gpus;
  if (own.empty()) return c10::Device(c10::DeviceType::CPU);
  const auto place = std::find(visible.begin(), visible.end(), own.front());
  const auto index = place == visible.end() ? 0 : place - visible.begin();
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
}

c10::intrusive_ptr<c10d::Store> store() { return c10::make_intrusive<ControlPlaneStore>(); }

}  // namespace trireme::torch
