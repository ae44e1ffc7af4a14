#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/detected_devices.h"
#include "engine/engine.h"

// The GPUs that this process may assign to workers. The user's own mask (CUDA_VISIBLE_DEVICES and similar) is a limit.

namespace trireme::engine {

// A kind of device, and how a process is limited to some devices of that kind.
struct Accelerator {
  std::string_view vendor;
  std::string_view variable;     // environment variable that lists the visible devices
  std::string_view alias;        // a second variable that the same runtime reads; empty: none
  std::string_view device_file;  // exists if the driver is loaded; empty: recognized by the variable only
};

struct GpuInventory {
  Accelerator accelerator;
  std::vector<Gpu> gpus;                         // detected, and in the mask
  std::optional<std::vector<std::string>> mask;  // the valid entries of the user's mask; nullopt: no mask
  bool detected = false;                         // a driver responded, so other devices in the mask do not exist
  bool bus_order = false;                        // ids are indexes in PCI bus order
  std::vector<std::string> unusable;             // ids of devices that must not be assigned
  std::vector<std::string> warnings;
};

// The surroundings of this process; replaceable for tests.
struct GpuSources {
  std::function<std::optional<std::string>(std::string_view name)> variable;
  std::function<bool(std::string_view path)> file_exists;
  std::function<std::vector<DetectedDevice>()> nvidia;
  std::function<std::vector<DetectedDevice>()> amd;
};
GpuSources system_gpu_sources();

GpuInventory find_gpus(const GpuSources& sources = system_gpu_sources());

// `count` GPUs: the detected ones first. If more are declared than detected: the other entries of the mask if no driver
// responds, or the lowest unused indexes without a mask. May return fewer with a mask, never a device outside of it.
std::vector<Gpu> declared_gpus(const GpuInventory& inventory, int count);

// The variables that limit a process to these devices, in this order.
std::map<std::string, std::string> visible_variables(const GpuInventory& inventory,
                                                     const std::vector<std::string>& ids);

}  // namespace trireme::engine
