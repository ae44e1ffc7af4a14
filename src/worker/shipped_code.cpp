#include "worker/shipped_code.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <exception>
#include <filesystem>

#include "base/lock_file.h"
#include "checkpoint/scratch_folder.h"
#include "storage/code_tree.h"
#include "storage/local_files.h"
#include "storage/paths.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;
using base::Result;

// The boundary to the file system, which throws.
Result<void> download(FileSystem& driver, const std::string& from, const std::string& to) {
  try {
    for (const auto& file : driver.list_files(from)) {
      const std::string target = file.path.empty() ? to : to + "/" + file.path;
      if (!file.path.empty()) TRIREME_TRY(storage::check_relative(file.path));
      fs::create_directories(fs::path(target).parent_path());
      driver.download(file.path.empty() ? from : from + "/" + file.path, target);
    }
  } catch (const std::exception& problem) {
    return base::error("{}", problem.what());
  }
  return {};
}

Result<std::string> fetch(FileSystem& driver, const std::string& path, const std::string& digest) {
  const std::string folder = checkpoint::temporary_folder("code");
  TRIREME_TRY(checkpoint::make_private(folder));
  // The name is kept: a module's file, or a package's folder.
  const std::string own = folder + "/" + digest;
  const std::string target = own + "/" + fs::path(path).filename().native();
  base::LockFile lock(base::Fd(::open((own + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
  if (!lock.valid() || !lock.lock(LOCK_EX)) return base::system_error("could not lock " + own, errno);
  std::error_code ignored;  // it is fetched if it cannot be read here
  if (fs::exists(target, ignored)) return target;
  const std::string same = own + ".same";  // so that it is compared once per node
  if (fs::exists(same, ignored)) return path;
  if (fs::exists(path, ignored)) {
    const auto here = storage::read_code(path);
    if (here && here->digest == digest) {
      TRIREME_TRY(storage::write_file_atomically(same, ""));
      return path;
    }
  }
  const std::string part = own + ".part";
  TRIREME_TRY(storage::remove_folder(part));
  const std::string made = part + "/" + fs::path(path).filename().native();
  TRIREME_TRY(download(driver, path, made));
  TRIREME_TRY(storage::make_folder(part));
  std::error_code failure;
  fs::rename(part, own, failure);
  if (failure) return base::system_error("could not create " + own, failure.value());
  return target;
}

}  // namespace

Result<std::map<std::string, std::string>> fetch_code(FileSystem& driver,
                                                      const std::map<std::string, std::string>& code) {
  std::map<std::string, std::string> here;
  for (const auto& [path, digest] : code) {
    TRIREME_ASSIGN(here[path], fetch(driver, path, digest), "could not fetch the code {} from the driver", path);
  }
  return here;
}

}  // namespace trireme::worker
