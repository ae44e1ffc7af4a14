#include "storage/posix_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/fd.h"

namespace trireme::storage {
namespace {

int outcome(int returned) { return returned == 0 ? 0 : errno; }

template <typename Call>
auto without_interruption(Call call) {
  while (true) {
    const auto returned = call();
    if (returned >= 0 || errno != EINTR) return returned;
  }
}

class PosixFile final : public OpenFile {
 public:
  explicit PosixFile(base::Fd fd) : fd_(std::move(fd)) {}

  int read(char* buffer, std::size_t size, std::size_t& got) override {
    const ssize_t count = without_interruption([&] { return ::read(fd_.get(), buffer, size); });
    if (count < 0) return errno;
    got = static_cast<std::size_t>(count);
    return 0;
  }

  int write(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = without_interruption([&] { return ::write(fd_.get(), bytes.data(), bytes.size()); });
      if (count < 0) return errno;
      bytes.remove_prefix(static_cast<std::size_t>(count));
      written_ += count;
    }
    if (written_ - started_ >= kWriteBack) start_sync();
    return 0;
  }

  void start_sync() override {
    // A hint. If the file system does not support it, sync() does the work and reports errors.
    (void)::sync_file_range(fd_.get(), started_, 0, SYNC_FILE_RANGE_WRITE);
    started_ = written_;
  }

  int sync() override {
    return outcome(without_interruption([&] { return ::fsync(fd_.get()); }));
  }

  int close() override { return outcome(::close(fd_.release())); }

 private:
  // Large enough for efficient writes, small enough that the last sync has little left to do.
  static constexpr off_t kWriteBack = off_t{8} << 20;

  base::Fd fd_;
  off_t written_ = 0;
  off_t started_ = 0;
};

class PosixFolder final : public OpenFolder {
 public:
  explicit PosixFolder(base::Fd fd) : fd_(std::move(fd)) {}

  int sync() override {
    return outcome(without_interruption([&] { return ::fsync(fd_.get()); }));
  }
  int sync_all() override {
    return outcome(without_interruption([&] { return ::syncfs(fd_.get()); }));
  }

 private:
  base::Fd fd_;
};

int open_fd(const std::string& path, int flags, base::Fd& fd) {
  fd = base::Fd(without_interruption([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666); }));
  return fd.valid() ? 0 : errno;
}

Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return Kind::kFile;
  if (S_ISDIR(mode)) return Kind::kFolder;
  if (S_ISLNK(mode)) return Kind::kLink;
  return Kind::kOther;
}

int look_at(const std::string& path, int flags, Status& status) {
  struct stat found {};
  if (::fstatat(AT_FDCWD, path.c_str(), &found, flags) != 0) return errno;
  status.kind = kind_of(found.st_mode);
  status.size = static_cast<std::uint64_t>(found.st_size);
  status.names = found.st_nlink;
  status.id = {found.st_dev, found.st_ino};
  return 0;
}

}  // namespace

int PosixDisk::open(const std::string& path, std::unique_ptr<OpenFile>& file) {
  base::Fd fd;
  if (int failure = open_fd(path, O_RDONLY, fd)) return failure;
  file = std::make_unique<PosixFile>(std::move(fd));
  return 0;
}

int PosixDisk::create(const std::string& path, std::unique_ptr<OpenFile>& file) {
  base::Fd fd;
  if (int failure = open_fd(path, O_WRONLY | O_CREAT | O_EXCL, fd)) return failure;
  file = std::make_unique<PosixFile>(std::move(fd));
  return 0;
}

int PosixDisk::open_folder(const std::string& path, std::unique_ptr<OpenFolder>& folder) {
  base::Fd fd;
  if (int failure = open_fd(path, O_RDONLY | O_DIRECTORY, fd)) return failure;
  folder = std::make_unique<PosixFolder>(std::move(fd));
  return 0;
}

int PosixDisk::rename(const std::string& from, const std::string& to) {
  return outcome(::rename(from.c_str(), to.c_str()));
}
int PosixDisk::link(const std::string& from, const std::string& to) {
  return outcome(::link(from.c_str(), to.c_str()));
}
int PosixDisk::remove_file(const std::string& path) { return outcome(::unlink(path.c_str())); }
int PosixDisk::make_folder(const std::string& path) { return outcome(::mkdir(path.c_str(), 0777)); }
int PosixDisk::remove_folder(const std::string& path) { return outcome(::rmdir(path.c_str())); }

int PosixDisk::list(const std::string& folder, std::vector<std::string>& names) {
  names.clear();
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), ::closedir);
  if (!stream) return errno;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (!entry) return errno;
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      names.emplace_back(entry->d_name);
  }
}

int PosixDisk::look(const std::string& path, Status& status) { return look_at(path, AT_SYMLINK_NOFOLLOW, status); }
int PosixDisk::look_through(const std::string& path, Status& status) { return look_at(path, 0, status); }

}  // namespace trireme::storage
