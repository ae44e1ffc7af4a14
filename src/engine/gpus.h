#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

// The GPUs that this process may assign to workers.

namespace trireme::engine {

struct Device {
  std::string name;
  std::string uuid;
};

// The devices that the NVIDIA driver reports, by index; empty if its library is absent or does not respond.
std::vector<Device> nvml_devices();

// The devices in `visible` (CUDA_VISIBLE_DEVICES, if set), in its order. As in CUDA, the list ends at the first invalid
// entry.
std::vector<Gpu> visible_gpus(const std::vector<Device>& devices, const std::optional<std::string>& visible);

// `count` GPUs: the detected ones first, then, if more are declared than detected, the lowest unused indexes.
std::vector<Gpu> declared_gpus(std::vector<Gpu> found, int count);

}  // namespace trireme::engine
