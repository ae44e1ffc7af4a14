// A replacement for the NVIDIA driver's libnvidia-ml.so.1, for machines without a GPU. $TRIREME_FAKE_NVML lists the
// devices: "name|uuid;name|uuid|lost;name|uuid|mig=uuid:name,uuid:name". Unset: the driver is not loaded.

#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kDriverNotLoaded = 9;
constexpr int kGpuIsLost = 15;

struct Device {
  std::string name;
  std::string uuid;
  bool lost = false;
  bool divided = false;
  std::deque<Device> instances = {};
};

std::deque<Device> g_devices;  // a deque: handles are addresses
int g_users = 0;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

Device parse(const std::string& text) {
  const auto fields = split(text, '|');
  Device device{.name = fields.at(0), .uuid = fields.at(1)};
  for (std::size_t i = 2; i < fields.size(); ++i) {
    if (fields[i] == "lost") device.lost = true;
    if (!fields[i].starts_with("mig=")) continue;
    device.divided = true;
    for (const auto& instance : split(fields[i].substr(4), ',')) {
      if (instance.empty()) continue;
      const auto words = split(instance, ':');
      device.instances.push_back({.name = words.at(1), .uuid = words.at(0)});
    }
  }
  return device;
}

int copy(const std::string& text, char* to, unsigned size) {
  if (text.size() + 1 > size) return kInsufficientSize;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

}  // namespace

extern "C" {
#define FAKE __attribute__((visibility("default")))

FAKE int nvmlInit_v2() {
  const char* described = std::getenv("TRIREME_FAKE_NVML");
  if (!described) return kDriverNotLoaded;
  if (g_users++ > 0) return kSuccess;
  g_devices.clear();
  for (const auto& each : split(described, ';')) {
    if (!each.empty()) g_devices.push_back(parse(each));
  }
  return kSuccess;
}

FAKE int nvmlShutdown() {
  if (g_users == 0) return kUninitialized;
  --g_users;
  return kSuccess;
}

FAKE int nvmlDeviceGetCount_v2(unsigned* count) {
  if (g_users == 0) return kUninitialized;
  *count = static_cast<unsigned>(g_devices.size());
  return kSuccess;
}

FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (g_users == 0) return kUninitialized;
  if (index >= g_devices.size()) return kInvalidArgument;
  if (g_devices[index].lost) return kGpuIsLost;
  *handle = &g_devices[index];
  return kSuccess;
}

FAKE int nvmlDeviceGetName(void* handle, char* name, unsigned size) {
  return copy(static_cast<Device*>(handle)->name, name, size);
}

FAKE int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned size) {
  return copy(static_cast<Device*>(handle)->uuid, uuid, size);
}

FAKE int nvmlDeviceGetMigMode(void* handle, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<Device*>(handle)->divided ? 1 : 0;
  return kSuccess;
}

FAKE int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* count) {
  *count = static_cast<Device*>(handle)->divided ? 7 : 0;
  return kSuccess;
}

FAKE int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned index, void** instance) {
  auto& instances = static_cast<Device*>(handle)->instances;
  if (index >= instances.size()) return kNotFound;
  *instance = &instances[index];
  return kSuccess;
}

FAKE const char* nvmlErrorString(int code) {
  return code == kGpuIsLost ? "GPU is lost" : "an error of the fake driver";
}
}
