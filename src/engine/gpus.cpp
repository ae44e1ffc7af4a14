#include "engine/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "base/log.h"
#include "base/text.h"

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
    return nvml;
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Handle*) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;

 private:
  template <typename Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library_.get(), symbol));
    return function != nullptr;
  }

  struct Close {
    void operator()(void* library) const { ::dlclose(library); }
  };
  std::unique_ptr<void, Close> library_;
};

std::optional<int> find_device(const std::vector<Device>& devices, std::string_view entry) {
  int index = -1;
  const auto [end, failure] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (failure == std::errc() && end == entry.data() + entry.size()) {
    if (index < 0 || static_cast<std::size_t>(index) >= devices.size()) return {};
    return index;
  }
  if (!entry.starts_with("GPU-")) return {};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    // CUDA accepts a prefix of a UUID.
    if (devices[i].uuid.starts_with(entry)) return static_cast<int>(i);
  }
  return {};
}

}  // namespace

std::vector<Device> nvml_devices() {
  const auto nvml = Nvml::load();
  if (!nvml || nvml->init() != 0) return {};
  std::vector<Device> devices;
  unsigned count = 0;
  if (nvml->count(&count) == 0) {
    for (unsigned i = 0; i < count; ++i) {
      std::array<char, 128> name{};
      std::array<char, 128> uuid{};
      Nvml::Handle handle = nullptr;
      if (nvml->handle(i, &handle) == 0) {
        nvml->name(handle, name.data(), name.size() - 1);
        nvml->uuid(handle, uuid.data(), uuid.size() - 1);
      }
      devices.push_back({.name = name.data(), .uuid = uuid.data()});
    }
  }
  nvml->shutdown();
  return devices;
}

std::vector<Gpu> visible_gpus(const std::vector<Device>& devices, const std::optional<std::string>& visible) {
  std::vector<Gpu> gpus;
  if (!visible) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      gpus.push_back({.index = static_cast<int>(i), .type = devices[i].name});
    }
    return gpus;
  }
  for (const auto& part : base::split(*visible, ',')) {
    const auto index = find_device(devices, base::trim(part));
    if (!index) {
      if (!devices.empty() && base::trim(part).starts_with("MIG-")) {
        base::log_warning(
            "CUDA_VISIBLE_DEVICES lists the MIG device {}: MIG devices are not supported, and it is not used", part);
      }
      break;
    }
    const bool twice = std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.index == *index; });
    if (!twice) gpus.push_back({.index = *index, .type = devices[static_cast<std::size_t>(*index)].name});
  }
  return gpus;
}

std::vector<Gpu> declared_gpus(std::vector<Gpu> found, int count) {
  const auto wanted = static_cast<std::size_t>(std::max(count, 0));
  if (found.size() > wanted) found.resize(wanted);
  for (int index = 0; found.size() < wanted; ++index) {
    const bool used = std::any_of(found.begin(), found.end(), [&](const Gpu& gpu) { return gpu.index == index; });
    if (!used) found.push_back({.index = index, .type = ""});
  }
  return found;
}

}  // namespace trireme::engine
