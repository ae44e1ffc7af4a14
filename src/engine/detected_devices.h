#pragma once

#include <filesystem>
#include <string>
#include <vector>

// The devices that the driver of a vendor reports.

namespace trireme::engine {

struct DetectedDevice {
  std::string name;
  std::string uuid;
  std::string problem = {};  // why it cannot be used, for example that it has fallen off the bus; empty: it can
  bool divided = false;      // MIG is enabled: only its instances can be used
  std::vector<DetectedDevice> instances = {};
};

// NVIDIA: in PCI bus order, including devices that cannot be used; empty if the driver's library is absent or does not
// respond.
std::vector<DetectedDevice> nvml_devices();

// AMD: in the order of HIP; empty without the driver.
std::vector<DetectedDevice> kfd_devices(const std::filesystem::path& nodes = "/sys/class/kfd/kfd/topology/nodes");

}  // namespace trireme::engine
