#include "engine/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/text.h"

namespace trireme::engine {
namespace {

constexpr Accelerator kNvidia{"NVIDIA", "CUDA_VISIBLE_DEVICES", "", "/dev/nvidiactl"};
// HIP also reads CUDA_VISIBLE_DEVICES, and frameworks refuse different values.
constexpr Accelerator kAmd{"AMD", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "/dev/kfd"};
// A mask below HIP, which numbers the remaining devices again.
constexpr Accelerator kAmdRuntime{"AMD", "ROCR_VISIBLE_DEVICES", "", ""};
constexpr Accelerator kAscend{"Ascend", "ASCEND_RT_VISIBLE_DEVICES", "", "/dev/davinci_manager"};
constexpr Accelerator kIntel{"Intel", "ZE_AFFINITY_MASK", "", ""};
// In order of precedence. NVIDIA is the default, and its variable is also read by HIP, so it is last.
constexpr std::array kAccelerators = {kAmd, kAmdRuntime, kAscend, kIntel, kNvidia};

std::optional<std::string> mask_of(const Accelerator& accelerator, const GpuSources& sources) {
  auto mask = sources.variable(accelerator.variable);
  if (!mask && !accelerator.alias.empty()) mask = sources.variable(accelerator.alias);
  return mask;
}

Accelerator accelerator_here(const GpuSources& sources) {
  for (const auto& each : kAccelerators) {
    if (each.variable != kNvidia.variable && sources.variable(each.variable)) return each;
  }
  for (const auto& each : kAccelerators) {
    if (!each.device_file.empty() && sources.file_exists(each.device_file)) return each;
  }
  return kNvidia;
}

std::optional<std::size_t> index_of(std::string_view entry) {
  std::size_t index = 0;
  const auto [end, failure] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (failure != std::errc() || end != entry.data() + entry.size()) return {};
  return index;
}

// As in CUDA, the list ends at the first entry that names no device, such as -1.
std::vector<std::string> entries_of(const std::string& mask) {
  std::vector<std::string> entries;
  for (const auto& part : base::split(mask, ',')) {
    const std::string entry(base::trim(part));
    const bool number = !entry.empty() && entry.front() >= '0' && entry.front() <= '9';
    if (!number && !entry.starts_with("GPU-") && !entry.starts_with("MIG-")) break;
    if (std::find(entries.begin(), entries.end(), entry) == entries.end()) entries.push_back(entry);
  }
  return entries;
}

// The devices of one driver, and the part of them that the user's mask selects.
class Selection {
 public:
  Selection(GpuInventory& inventory, const std::vector<DetectedDevice>& devices, bool bus_order)
      : inventory_(inventory), devices_(devices), bus_order_(bus_order) {
    std::set<std::string> types;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      complete_ = complete_ && devices[i].problem.empty() && !devices[i].divided;
      if (devices[i].problem.empty()) {
        types.insert(devices[i].name);
      } else {
        inventory.warnings.push_back(
            fmt::format("GPU {} is not used: {}; `nvidia-smi` shows its state, and a reset or a reboot may help", i,
                        devices[i].problem));
      }
    }
    mixed_ = types.size() > 1;
    // An index is either a device that cannot be used or one that has a UUID as its id.
    for (std::size_t i = 0; !complete_ && i < devices.size(); ++i) inventory.unusable.push_back(std::to_string(i));
  }

  // Without a mask the ids are this process's choice: indexes in the driver's order, because more programs understand
  // them than UUIDs. CUDA may not count devices that are lost or divided, so then they are UUIDs.
  void add_all() {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto& device = devices_[i];
      if (!device.problem.empty()) continue;
      if (device.divided) {
        add_instances(device);
      } else {
        add(complete_ || device.uuid.empty() ? std::to_string(i) : device.uuid, device, device.name);
      }
    }
    inventory_.bus_order = complete_ && !devices_.empty();
  }

  // False if CUDA would ignore this entry and all that follow.
  bool add_entry(const std::string& entry) {
    if (entry.starts_with("MIG-")) return add_instance(entry);
    std::optional<std::size_t> index = index_of(entry);
    for (std::size_t i = 0; !index && i < devices_.size(); ++i) {
      // CUDA accepts a prefix of a UUID.
      if (devices_[i].uuid.starts_with(entry)) index = i;
    }
    if (!index || *index >= devices_.size()) return false;
    const auto& device = devices_[*index];
    if (!device.problem.empty()) return true;
    if (device.divided) {
      add_instances(device);
      return true;
    }
    // The user's index counts in CUDA's order, which is the driver's only if all devices are equal or it was requested.
    const bool unsure = index_of(entry) && mixed_ && !bus_order_;
    if (unsure) warn_about_order(entry);
    const bool renumbered = index_of(entry) && !complete_ && !unsure && !device.uuid.empty();
    add(renumbered ? device.uuid : entry, device, unsure ? "" : device.name);
    return true;
  }

 private:
  void add(std::string id, const DetectedDevice& device, std::string type) {
    const bool twice = std::any_of(inventory_.gpus.begin(), inventory_.gpus.end(), [&](const Gpu& gpu) {
      return gpu.id == id || (!device.uuid.empty() && gpu.uuid == device.uuid);
    });
    if (!twice) inventory_.gpus.push_back({.id = std::move(id), .uuid = device.uuid, .type = std::move(type)});
  }

  void add_instances(const DetectedDevice& device) {
    for (const auto& each : device.instances) add(each.uuid, each, each.name);
  }

  bool add_instance(const std::string& entry) {
    for (const auto& device : devices_) {
      for (const auto& each : device.instances) {
        if (!each.uuid.starts_with(entry)) continue;
        add(entry, each, each.name);
        return true;
      }
    }
    return false;
  }

  void warn_about_order(const std::string& entry) {
    if (warned_) return;
    warned_ = true;
    inventory_.warnings.push_back(fmt::format(
        "{} lists GPU {} by its index, and this machine has GPUs of different types, which CUDA and the driver may "
        "number differently: their types are treated as unknown; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list UUIDs "
        "(`nvidia-smi -L`)",
        inventory_.accelerator.variable, entry));
  }

  GpuInventory& inventory_;
  const std::vector<DetectedDevice>& devices_;
  bool bus_order_;
  bool mixed_ = false;
  bool complete_ = true;
  bool warned_ = false;
};

}  // namespace

GpuSources system_gpu_sources() {
  return {.variable = [](std::string_view name) -> std::optional<std::string> {
            const char* value = std::getenv(std::string(name).c_str());
            if (!value) return {};
            return value;
          },
          .file_exists =
              [](std::string_view path) {
                std::error_code failure;
                return std::filesystem::exists(path, failure);
              },
          .nvidia = nvml_devices,
          .amd = [] { return kfd_devices(); }};
}

GpuInventory find_gpus(const GpuSources& sources) {
  GpuInventory inventory;
  auto devices = sources.nvidia();
  inventory.accelerator = devices.empty() ? accelerator_here(sources) : kNvidia;
  if (inventory.accelerator.variable == kAmd.variable && !sources.variable(kAmdRuntime.variable)) {
    devices = sources.amd();
  }
  inventory.detected = !devices.empty();
  const auto mask = mask_of(inventory.accelerator, sources);
  Selection selection(inventory, devices, sources.variable("CUDA_DEVICE_ORDER") == "PCI_BUS_ID");
  if (!mask) {
    selection.add_all();
    return inventory;
  }
  inventory.mask = entries_of(*mask);
  for (const auto& entry : *inventory.mask) {
    if (!selection.add_entry(entry)) break;
  }
  return inventory;
}

std::vector<Gpu> declared_gpus(const GpuInventory& inventory, int count) {
  const auto wanted = static_cast<std::size_t>(std::max(count, 0));
  std::vector<Gpu> gpus = inventory.gpus;
  if (gpus.size() > wanted) gpus.resize(wanted);
  const auto add = [&](const std::string& id) {
    const bool used = std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.id == id; });
    const bool unusable =
        std::find(inventory.unusable.begin(), inventory.unusable.end(), id) != inventory.unusable.end();
    if (!used && !unusable && gpus.size() < wanted) gpus.push_back({.id = id, .uuid = "", .type = ""});
  };
  if (inventory.mask) {
    if (!inventory.detected) std::for_each(inventory.mask->begin(), inventory.mask->end(), add);
  } else {
    for (std::size_t index = 0; gpus.size() < wanted; ++index) add(std::to_string(index));
  }
  return gpus;
}

std::map<std::string, std::string> visible_variables(const GpuInventory& inventory,
                                                     const std::vector<std::string>& ids) {
  const std::string list = base::join(ids, ",");
  std::map<std::string, std::string> variables{{std::string(inventory.accelerator.variable), list}};
  if (!inventory.accelerator.alias.empty()) variables[std::string(inventory.accelerator.alias)] = list;
  if (inventory.bus_order && inventory.accelerator.variable == kNvidia.variable) {
    variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  }
  return variables;
}

}  // namespace trireme::engine
