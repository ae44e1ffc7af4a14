#include "plan/relational.h"

#include <atomic>

namespace trireme::plan {
namespace {

std::atomic<const Relational*> registered = nullptr;

}  // namespace

void register_relational(const Relational& relational) { registered = &relational; }

base::Result<const Relational*> relational(std::string_view call) {
  if (const Relational* found = registered) return found;
  return base::error(
      "{} needs the library trireme::data, which this program does not link: add find_package(trireme COMPONENTS data) "
      "and target_link_libraries(... trireme::data) to its CMakeLists.txt",
      call);
}

}  // namespace trireme::plan
