#include "base/host.h"

#include <unistd.h>

#include <fstream>

namespace trireme::base {

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

std::string process_table() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  char space[64] = {};
  if (!std::getline(file, boot) || ::readlink("/proc/self/ns/pid", space, sizeof space - 1) <= 0) return "";
  return boot + " " + space;
}

}  // namespace trireme::base
