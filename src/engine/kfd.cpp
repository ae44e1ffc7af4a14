#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <map>

#include "engine/detected_devices.h"

namespace trireme::engine {
namespace {

namespace fs = std::filesystem;

// "name value" lines. Nodes that this process has no permission for read as empty.
std::map<std::string, std::uint64_t> properties_of(const fs::path& node) {
  std::ifstream file(node / "properties");
  std::map<std::string, std::uint64_t> properties;
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) properties[name] = value;
  return properties;
}

}  // namespace

std::vector<DetectedDevice> kfd_devices(const fs::path& nodes) {
  std::vector<DetectedDevice> devices;
  std::error_code absent;
  for (int number = 0; fs::exists(nodes / std::to_string(number), absent); ++number) {
    const fs::path node = nodes / std::to_string(number);
    const auto properties = properties_of(node);
    const auto units = properties.find("simd_count");
    if (units == properties.end() || units->second == 0) continue;  // a CPU
    DetectedDevice device;
    std::getline(std::ifstream(node / "name"), device.name);
    device.name = "AMD" + (device.name.empty() ? "" : " " + device.name);
    const auto id = properties.find("unique_id");
    if (id != properties.end() && id->second != 0) device.uuid = fmt::format("GPU-{:016x}", id->second);
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace trireme::engine
