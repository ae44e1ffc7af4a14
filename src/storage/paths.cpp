#include "storage/paths.h"

#include <unistd.h>

#include <atomic>

namespace trireme::storage {

base::Result<void> check_relative(std::string_view path) {
  std::string_view rest = path;
  bool inside = path.find('\0') == std::string_view::npos;
  while (inside) {
    const auto slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    inside = !part.empty() && part != "." && part != "..";
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  if (!inside) return base::error("'{}' is no path below a checkpoint's folder", path);
  return {};
}

std::string temporary_in(const std::string& folder) {
  static std::atomic<std::uint64_t> last = 0;
  return fmt::format("{}/{}tmp_{}_{}", folder.empty() ? "." : folder, kOwnPrefix, ::getpid(), ++last);
}

}  // namespace trireme::storage
