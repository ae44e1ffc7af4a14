#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>

#include "engine/detected_devices.h"

namespace trireme::engine {
namespace {

// The few functions of nvml.h that are needed, loaded at run time because Trireme also runs without a driver.
class Nvml {
 public:
  using Handle = void*;

  static std::optional<Nvml> load() {
    Nvml nvml;
    nvml.library_.reset(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
    if (!nvml.library_) return {};
    const bool complete = nvml.find(nvml.init, "nvmlInit_v2") && nvml.find(nvml.shutdown, "nvmlShutdown") &&
                          nvml.find(nvml.count, "nvmlDeviceGetCount_v2") &&
                          nvml.find(nvml.handle, "nvmlDeviceGetHandleByIndex_v2") &&
                          nvml.find(nvml.name, "nvmlDeviceGetName") && nvml.find(nvml.uuid, "nvmlDeviceGetUUID");
    if (!complete) return {};
    // Drivers before R450 have no MIG.
    const bool divides = nvml.find(nvml.mig_mode, "nvmlDeviceGetMigMode") &&
                         nvml.find(nvml.max_instances, "nvmlDeviceGetMaxMigDeviceCount") &&
                         nvml.find(nvml.instance, "nvmlDeviceGetMigDeviceHandleByIndex");
    if (!divides) nvml.mig_mode = nullptr;
    nvml.find(nvml.error_text, "nvmlErrorString");
    return nvml;
  }

  // Reads the name and the UUID. The driver may lose the device between any two calls.
  DetectedDevice describe(Handle handle, int failure) const {
    std::array<char, 128> name_text{};
    std::array<char, 128> uuid_text{};
    if (failure == 0) failure = name(handle, name_text.data(), name_text.size() - 1);
    if (failure == 0) failure = uuid(handle, uuid_text.data(), uuid_text.size() - 1);
    DetectedDevice device{.name = name_text.data(), .uuid = uuid_text.data()};
    if (failure != 0) {
      device.problem = error_text ? error_text(failure) : fmt::format("error {} of the NVIDIA driver", failure);
    }
    return device;
  }

  DetectedDevice describe(unsigned index) const {
    Handle device_handle = nullptr;
    const int failure = handle(index, &device_handle);
    DetectedDevice device = describe(device_handle, failure);
    if (!device.problem.empty()) return device;
    unsigned current = 0;
    unsigned pending = 0;
    device.divided = mig_mode && mig_mode(device_handle, &current, &pending) == 0 && current != 0;
    unsigned most = 0;
    if (device.divided && max_instances(device_handle, &most) != 0) most = 0;
    for (unsigned i = 0; i < most; ++i) {
      Handle part = nullptr;
      if (instance(device_handle, i, &part) != 0) continue;  // this place is not in use
      if (auto described = describe(part, 0); described.problem.empty()) {
        device.instances.push_back(std::move(described));
      }
    }
    return device;
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;

 private:
  template <typename Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library_.get(), symbol));
    return function != nullptr;
  }

  int (*handle)(unsigned, Handle*) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*mig_mode)(Handle, unsigned*, unsigned*) = nullptr;
  int (*max_instances)(Handle, unsigned*) = nullptr;
  int (*instance)(Handle, unsigned, Handle*) = nullptr;
  const char* (*error_text)(int) = nullptr;

  struct Close {
    void operator()(void* library) const { ::dlclose(library); }
  };
  std::unique_ptr<void, Close> library_;
};

}  // namespace

std::vector<DetectedDevice> nvml_devices() {
  const auto nvml = Nvml::load();
  if (!nvml || nvml->init() != 0) return {};
  std::vector<DetectedDevice> devices;
  unsigned count = 0;
  if (nvml->count(&count) == 0) {
    for (unsigned i = 0; i < count; ++i) devices.push_back(nvml->describe(i));
  }
  nvml->shutdown();
  return devices;
}

}  // namespace trireme::engine
