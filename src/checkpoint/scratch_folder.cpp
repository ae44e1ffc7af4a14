#include "checkpoint/scratch_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "storage/local_files.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

base::Result<void> make_private_one(const std::string& path) {
  TRIREME_TRY(storage::make_folder(fs::path(path).parent_path()));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return base::system_error(fmt::format("could not create the folder {}", path), errno);
  }
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return base::system_error(fmt::format("could not access {}", path), errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0) {
    return base::error("{} is writable by other users; remove it or set TMPDIR to a private folder", path);
  }
  return {};
}

// Invalid if another process holds the lock.
base::LockFile try_to_lock(const std::string& folder) {
  base::LockFile opened(base::Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  if (!opened.valid() || !opened.lock(LOCK_EX | LOCK_NB)) return {};
  return opened;
}

// Between creating and locking the folder, another process may have removed it as abandoned.
bool is_still_there(const base::LockFile& folder, const std::string& path) {
  struct stat ours {};
  struct stat named {};
  return ::fstat(folder.get(), &ours) == 0 && ::stat(path.c_str(), &named) == 0 && ours.st_dev == named.st_dev &&
         ours.st_ino == named.st_ino;
}

void remove_locked(const std::string& folder) {
  if (auto removed = storage::remove_folder(folder); !removed) base::log_warning("{}", removed.error().message());
}

}  // namespace

std::string temporary_folder(const std::string& name) {
  // On a node of a cluster: in the agent's folder, which is removed when the agent ends, or by the next one.
  if (const char* agent = std::getenv("TRIREME_LOG_ROOT")) return fmt::format("{}/{}", agent, name);
  std::error_code failure;
  auto temporary = fs::temp_directory_path(failure);
  if (failure) temporary = "/tmp";
  return (temporary / fmt::format("trireme-{}", ::geteuid()) / name).string();
}

base::Result<void> make_private(const std::string& folder) {
  TRIREME_TRY(make_private_one(fs::path(folder).parent_path()));
  return make_private_one(folder);
}

base::Result<ScratchFolder> ScratchFolder::make(const std::string& parent) {
  TRIREME_TRY(make_private(parent));
  remove_abandoned(parent);
  while (true) {
    std::string path = parent + "/XXXXXX";
    if (!::mkdtemp(path.data()))
      return base::system_error(fmt::format("could not create a folder in {}", parent), errno);
    auto locked = try_to_lock(path);
    if (locked.valid() && is_still_there(locked, path)) return ScratchFolder(std::move(path), std::move(locked));
  }
}

void ScratchFolder::remove_abandoned(const std::string& parent) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(parent, failure)) {
    const std::string folder = entry.path();
    if (auto locked = try_to_lock(folder); locked.valid() && is_still_there(locked, folder)) remove_locked(folder);
  }
}

ScratchFolder::~ScratchFolder() {
  if (locked_.valid()) remove_locked(path_);
}

}  // namespace trireme::checkpoint
