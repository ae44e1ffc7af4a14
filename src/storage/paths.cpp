#include "storage/paths.h"

#include <cstdint>
#include <random>

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
  if (!inside) return base::error("'{}' is not a relative path inside a checkpoint's folder", path);
  return {};
}

std::string temporary_in(const std::string& folder) {
  // A new seed every time: a forked child would continue the same sequence.
  std::random_device random;
  const std::uint64_t number = (std::uint64_t{random()} << 32) | random();
  return fmt::format("{}/{}tmp_{:016x}", folder.empty() ? "." : folder, kOwnPrefix, number);
}

}  // namespace trireme::storage
