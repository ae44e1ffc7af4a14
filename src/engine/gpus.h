#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

// Which GPUs this process may hand out.

namespace trireme::engine {

struct Device {
  std::string name;
  std::string uuid;
};

// What the NVIDIA driver shows, by index; nothing where its library is absent or does not answer.
std::vector<Device> nvml_devices();

// The devices that `visible` (CUDA_VISIBLE_DEVICES, when it is set) leaves, in its order. As CUDA does, the list ends
// at the first entry that names no device.
std::vector<Gpu> visible_gpus(const std::vector<Device>& devices, const std::optional<std::string>& visible);

// `count` GPUs: the found ones first, then, where more are declared than found, the lowest indexes that are left.
std::vector<Gpu> declared_gpus(std::vector<Gpu> found, int count);

}  // namespace trireme::engine
