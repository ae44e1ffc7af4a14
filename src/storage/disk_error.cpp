#include "storage/disk_error.h"

#include <cerrno>
#include <filesystem>

namespace trireme::storage {
namespace {

std::string_view way_out(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: return "; free space there or choose another storage_path";
    case EROFS: return "; it is read-only: choose another storage_path, or mount it for writing";
    case EACCES:
    case EPERM: return "; change its permissions or choose another storage_path";
    case ESTALE: return "; the server no longer knows it: check the mount";
    default: return "";
  }
}

}  // namespace

base::Error failed(std::string_view what, const std::string& path, int error_number) {
  auto error = base::system_error(fmt::format("could not {} {}", what, path), error_number);
  return base::Error(error.what() + std::string(way_out(error_number)));
}

bool no_space_for(const std::string& path) {
  constexpr std::uintmax_t kFewLines = 4096;
  std::error_code unknown;
  const auto space = std::filesystem::space(std::filesystem::path(path).parent_path(), unknown);
  // File systems without accounting report a capacity of 0.
  return !unknown && space.capacity > 0 && space.available < kFewLines;
}

base::Error removed_meanwhile(const std::string& path) {
  return base::error(
      "{} was removed while it was being stored; keep the folder until report() returns, or with ASYNC until the "
      "upload is done",
      path);
}

}  // namespace trireme::storage
