#include "checkpoint/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "base/fd.h"
#include "storage/digest.h"
#include "storage/disk_error.h"

namespace trireme::checkpoint {
namespace {

using storage::failed;

constexpr std::size_t kStep = std::size_t{1} << 21;

struct OpenFile {
  base::Fd fd;
  std::size_t size = 0;
};

base::Result<OpenFile> open_file(const std::string& path) {
  OpenFile file{base::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))};
  if (!file.fd.valid()) return failed("open", path, errno);
  struct stat status {};
  if (::fstat(file.fd.get(), &status) != 0) return failed("access", path, errno);
  if (!S_ISREG(status.st_mode)) return base::error("{} is not a file", path);
  file.size = static_cast<std::size_t>(status.st_size);
  return file;
}

// Maps the file or, without a descriptor, anonymous memory.
base::Result<FileBytes> map_memory(std::size_t size, int fd, const std::string& path) {
  if (size == 0) return FileBytes{};
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) return failed("map", path, errno);
  auto unmap = [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); };
  return FileBytes{static_cast<std::byte*>(memory), size, std::shared_ptr<const void>(memory, unmap)};
}

base::Result<void> read_step(int fd, const std::string& path, const FileBytes& bytes, std::size_t& at) {
  const std::size_t wanted = std::min(kStep, bytes.size - at);
  const ssize_t count = ::pread(fd, bytes.data + at, wanted, static_cast<off_t>(at));
  if (count < 0 && errno == EINTR) return {};
  if (count < 0) return failed("read", path, errno);
  if (count == 0)
    return base::error("{} ended after {} of {} bytes: it changed while it was being read", path, at, bytes.size);
  at += static_cast<std::size_t>(count);
  return {};
}

// Computes the checksum of a file while another thread reads it, a few steps behind.
class FollowingDigest {
 public:
  explicit FollowingDigest(std::string_view bytes) : thread_([this, bytes] { follow(bytes); }) {}

  void has_read(std::size_t until) {
    until_ = until;
    until_.notify_one();
  }
  void give_up() {
    given_up_ = true;
    has_read(static_cast<std::size_t>(-1));
  }
  std::string hex() {
    thread_.join();
    return digest_.hex();
  }

 private:
  void follow(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      until_.wait(at);
      if (given_up_) return;
      const std::size_t until = until_;
      digest_.add(bytes.substr(at, until - at));
      at = until;
    }
  }

  std::atomic<std::size_t> until_{0};
  std::atomic<bool> given_up_{false};
  storage::Digest digest_;
  std::jthread thread_;
};

}  // namespace

base::Result<FileBytes> map_file(const std::string& path) {
  TRIREME_ASSIGN(const auto file, open_file(path));
  TRIREME_ASSIGN(auto bytes, map_memory(file.size, file.fd.get(), path));
  // Starts reading from disk. If the advice is ignored, it is only slower.
  if (bytes.size > 0) ::madvise(bytes.data, bytes.size, MADV_WILLNEED);
  return bytes;
}

base::Result<FileBytes> read_file(const std::string& path, std::string* digest) {
  TRIREME_ASSIGN(const auto file, open_file(path));
  TRIREME_ASSIGN(auto bytes, map_memory(file.size, -1, path));
  std::optional<FollowingDigest> following;
  if (digest && bytes.size > kStep) following.emplace(bytes.text());
  for (std::size_t at = 0; at < bytes.size;) {
    auto read = read_step(file.fd.get(), path, bytes, at);
    if (!read) {
      if (following) following->give_up();
      return std::move(read).error();
    }
    if (following) following->has_read(at);
  }
  if (digest) *digest = following ? following->hex() : storage::digest_of(bytes.text());
  return bytes;
}

}  // namespace trireme::checkpoint
