#include "agent/node_environment.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/network.h"
#include "base/text.h"

namespace trireme::agent {
namespace {

// Which devices, which place in a job, which machine.
constexpr std::array<std::string_view, 20> kOfTheNode = {"CUDA_VISIBLE_DEVICES",
                                                         "NVIDIA_VISIBLE_DEVICES",
                                                         "HIP_VISIBLE_DEVICES",
                                                         "ROCR_VISIBLE_DEVICES",
                                                         "GPU_DEVICE_ORDINAL",
                                                         "ZE_AFFINITY_MASK",
                                                         "TPU_VISIBLE_CHIPS",
                                                         "HOSTNAME",
                                                         "HOST",
                                                         "TMPDIR",
                                                         "TMP",
                                                         "TEMP",
                                                         "XDG_RUNTIME_DIR",
                                                         "XDG_SESSION_ID",
                                                         "DISPLAY",
                                                         "WAYLAND_DISPLAY",
                                                         "DBUS_SESSION_BUS_ADDRESS",
                                                         "TTY",
                                                         "SHLVL",
                                                         "OLDPWD"};
constexpr std::array<std::string_view, 11> kPrefixesOfTheNode = {
    "SLURM", "SSH_", "PMI_", "PMIX_", "OMPI_", "PRTE_", "PBS_", "LSB_", "KUBERNETES_", "SGE_", "RAY_"};
// The driver's own settings, which would make a script in a worker start this engine once more.
constexpr std::array<std::string_view, 4> kOfTheDriver = {"TRIREME_ENGINE", "TRIREME_ENGINE_OPTIONS",
                                                          "TRIREME_RUN_ENGINE", "TRIREME_RUN_ENGINE_OPTIONS"};

bool of_the_node(std::string_view name) {
  return std::find(kOfTheNode.begin(), kOfTheNode.end(), name) != kOfTheNode.end() ||
         std::any_of(kPrefixesOfTheNode.begin(), kPrefixesOfTheNode.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

Environment node_environment(Environment driver, const Environment& node) {
  std::erase_if(driver, [](const auto& item) {
    return of_the_node(item.first) ||
           std::find(kOfTheDriver.begin(), kOfTheDriver.end(), item.first) != kOfTheDriver.end();
  });
  for (const auto& [name, value] : node) {
    if (of_the_node(name)) driver[name] = value;
  }
  // Those that the engine has set for the node.
  if (const auto names = node.find("TRIREME_NODE_VARIABLES"); names != node.end()) {
    for (const auto& name : base::split(names->second, ',')) {
      if (const auto own = node.find(name); own != node.end()) driver[name] = own->second;
    }
  }
  // The user's choice for all nodes, or for this one.
  for (const char* name : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    if (const auto own = node.find(name); own != node.end()) driver.try_emplace(name, own->second);
  }
  const auto home = driver.find("HOME");
  const auto home_here = node.find("HOME");
  if (home_here != node.end() && (home == driver.end() || !is_folder(home->second))) driver["HOME"] = home_here->second;
  return driver;
}

std::string local_address(int socket) {
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&local), &size) != 0) return "";
  return base::ip_text(*reinterpret_cast<const sockaddr*>(&local));
}

std::optional<std::string> interface_of(const std::string& address) {
  for (const auto& each : base::interfaces()) {
    if (each.address == address) return each.name;
  }
  return std::nullopt;
}

}  // namespace trireme::agent
