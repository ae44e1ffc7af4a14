#include "storage/local_files.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/fd.h"

namespace trireme::storage {
namespace {

namespace fs = std::filesystem;

base::Error failed(const char* what, const std::string& path, int error_number) {
  return base::system_error(fmt::format("could not {} {}", what, path), error_number);
}

base::Result<void> write_all(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    ssize_t count = ::write(fd, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("write", path, errno);
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

base::Result<void> copy_durably(const std::string& source, const std::string& target) {
  base::Fd from(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from.valid()) return failed("open", source, errno);
  base::Fd to(::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!to.valid()) return failed("create", target, errno);
  while (true) {
    ssize_t count = ::sendfile(to.get(), from.get(), nullptr, std::size_t{1} << 30);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("write", target, errno);
    if (count == 0) break;
  }
  if (::fsync(to.get()) != 0) return failed("sync", target, errno);
  return {};
}

}  // namespace

base::Result<std::string> read_file(const std::string& path) {
  base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return failed("open", path, errno);
  std::string content;
  char chunk[1 << 16];
  while (true) {
    ssize_t count = ::read(file.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("read", path, errno);
    if (count == 0) return content;
    content.append(chunk, static_cast<std::size_t>(count));
  }
}

base::Result<void> write_file_atomically(const std::string& path, std::string_view content) {
  // Another thread, or a process with this pid on another machine of a shared folder, may write the same file now.
  std::string temporary;
  base::Fd file;
  for (int i = 0; !file.valid(); ++i) {
    temporary = fmt::format("{}.{}-{}.tmp", path, ::getpid(), i);
    file = base::Fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.valid() && errno != EEXIST) return failed("create", temporary, errno);
  }
  auto written = write_all(file.get(), temporary, content);
  if (written && ::fsync(file.get()) != 0) written = failed("sync", temporary, errno);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = failed("rename to", path, errno);
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_folder(fs::path(path).parent_path());
}

base::Result<void> make_folder(const std::string& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) return failed("make the folder", path, failure.value());
  if (!fs::is_directory(path, failure)) return base::error("{} is not a folder", path);
  return {};
}

base::Result<void> sync_folder(const std::string& path) {
  base::Fd folder(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return failed("open the folder", path, errno);
  if (::fsync(folder.get()) != 0) return failed("sync the folder", path, errno);
  return {};
}

base::Result<std::vector<FileEntry>> list_files(const std::string& folder) {
  std::error_code failure;
  std::vector<FileEntry> files;
  fs::recursive_directory_iterator it(folder, failure);
  if (failure) return failed("list", folder, failure.value());
  for (; it != fs::recursive_directory_iterator(); it.increment(failure)) {
    if (failure) return failed("list", folder, failure.value());
    if (!it->is_regular_file(failure)) continue;
    // Lexically: a link to a file elsewhere is a file of this folder, under the link's name.
    files.push_back({it->path().lexically_relative(folder), it->file_size(failure)});
    if (failure) return failed("look at", it->path(), failure.value());
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

base::Result<void> copy_folder(const std::string& source, const std::string& target) {
  TRIREME_TRY(make_folder(target));
  TRIREME_ASSIGN(auto files, list_files(source));
  for (const auto& file : files) {
    fs::path to = fs::path(target) / file.path;
    TRIREME_TRY(make_folder(to.parent_path()));
    TRIREME_TRY(copy_durably((fs::path(source) / file.path).native(), to.native()));
  }
  return sync_folder(target);
}

base::Result<void> remove_folder(const std::string& path) {
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) return failed("remove", path, failure.value());
  return {};
}

}  // namespace trireme::storage
