#include "checkpoint/shared_download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/download.h"
#include "storage/digest.h"
#include "storage/local_files.h"

// The files of one download, all named after its key:
//   KEY            the checkpoint; created by rename, so it is complete
//   KEY.part       the download in progress
//   KEY.gone       the removal in progress
//   KEY.use        locked (shared) by all users of KEY, and exclusively for its removal
//   KEY.download   locked exclusively by the downloader; always after KEY.use, so that KEY is not removed

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUse = ".use";

std::string boot_id() {
  auto id = storage::read_file("/proc/sys/kernel/random/boot_id");
  return id ? *id : std::string();
}

// Unique for the content and for this boot. Nothing is synced to disk, so files may be torn after a crash of the
// machine; after a reboot, the key is different.
std::string key_of(const std::string& where, const Contents& contents) {
  std::string identity = fmt::format("{}\n{}\n{}\n{}\n", where, boot_id(), contents.manifest, contents.metadata);
  for (const auto& file : contents.files) identity += fmt::format("{} {}\n", file.size, file.path);
  return storage::digest_of(identity);
}

// Whether the open file still has this name: its last user may have removed it before we locked it.
bool still_named(const base::LockFile& file, const std::string& path) {
  struct stat ours {};
  struct stat named {};
  return ::fstat(file.get(), &ours) == 0 && ::stat(path.c_str(), &named) == 0 && ours.st_dev == named.st_dev &&
         ours.st_ino == named.st_ino;
}

base::Result<base::LockFile> open_lock(const std::string& path) {
  base::LockFile file(base::Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
  if (!file.valid()) return base::system_error(fmt::format("could not open {}", path), errno);
  return file;
}

base::Result<base::LockFile> lock_for_use(const std::string& path) {
  while (true) {
    TRIREME_ASSIGN(auto file, open_lock(path));
    if (!file.lock(LOCK_SH)) return base::system_error(fmt::format("could not lock {}", path), errno);
    if (still_named(file, path)) return file;
  }
}

// Removes the download `folder` if it is unused. Releases its lock `in_use` in any case.
void remove_if_unused(const std::string& folder, base::LockFile in_use) {
  const std::string use = folder + std::string(kUse);
  if (!in_use.lock(LOCK_EX | LOCK_NB) || !still_named(in_use, use)) return;
  std::error_code ignored;
  fs::rename(folder, folder + ".gone", ignored);  // atomic: a partial folder must not look complete
  for (const char* part : {".gone", ".part"}) {
    if (auto removed = storage::remove_folder(folder + part); !removed) {
      base::log_warning("{}", removed.error().message());
    }
  }
  fs::remove(folder + ".download", ignored);
  fs::remove(use, ignored);
}

base::Result<void> download_once(storage::Files& files, const std::string& path, const Contents& contents,
                                 const std::string& folder) {
  TRIREME_ASSIGN(const auto alone, open_lock(folder + ".download"));
  if (!alone.lock(LOCK_EX)) return base::system_error(fmt::format("could not lock {}.download", folder), errno);
  if (fs::exists(folder)) return {};  // another process downloaded it while we waited
  const std::string part = folder + ".part";
  TRIREME_TRY(storage::remove_folder(part));
  auto got = download(files, path, contents, part);
  if (!got) {
    if (auto removed = storage::remove_folder(part); !removed) base::log_warning("{}", removed.error().message());
    return got;
  }
  std::error_code failure;
  fs::rename(part, folder, failure);
  if (failure) return base::system_error(fmt::format("could not rename {} to {}", part, folder), failure.value());
  return {};
}

}  // namespace

base::Result<SharedDownload> SharedDownload::open(storage::Files& files, const std::string& path,
                                                  const std::string& downloads) {
  if (files.local()) return SharedDownload(path);
  TRIREME_ASSIGN(const auto contents, read_contents(files, path));
  TRIREME_TRY(make_private(downloads));
  SharedDownload shared(downloads + "/" + key_of(files.describe(path), contents));
  TRIREME_ASSIGN(shared.in_use_, lock_for_use(shared.folder_ + std::string(kUse)));
  remove_abandoned(downloads);
  if (!fs::exists(shared.folder_)) {
    TRIREME_TRY(download_once(files, path, contents, shared.folder_), "could not download {}", files.describe(path));
  }
  return shared;
}

void SharedDownload::remove_abandoned(const std::string& downloads) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(downloads, failure)) {
    const std::string path = entry.path();
    if (!path.ends_with(kUse)) continue;
    base::LockFile file(base::Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC)));
    if (file.valid()) remove_if_unused(path.substr(0, path.size() - kUse.size()), std::move(file));
  }
}

SharedDownload& SharedDownload::operator=(SharedDownload&& other) noexcept {
  if (this != &other) {
    release();
    folder_ = std::move(other.folder_);
    in_use_ = std::move(other.in_use_);
  }
  return *this;
}

SharedDownload::~SharedDownload() { release(); }

void SharedDownload::release() {
  if (in_use_.valid()) remove_if_unused(folder_, std::move(in_use_));
}

}  // namespace trireme::checkpoint
