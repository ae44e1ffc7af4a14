#include "base/host.h"

#include <unistd.h>

namespace trireme::base {

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

}  // namespace trireme::base
