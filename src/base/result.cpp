#include "base/result.h"

#include <cstring>

namespace trireme::base {

Error system_error(std::string_view what, int error_number) {
  return error("{}: {} (errno {})", what, std::strerror(error_number), error_number);
}

}  // namespace trireme::base
