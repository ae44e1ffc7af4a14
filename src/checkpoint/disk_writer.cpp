#include "checkpoint/disk_writer.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "storage/disk_error.h"

namespace trireme::checkpoint {
namespace {

using storage::failed;

// With larger writes, the kernel searches for huge pages.
constexpr std::size_t kWriteStep = std::size_t{1} << 20;
// Writeback is requested in steps of this size: the disk is never idle, and the requests stay large.
constexpr std::size_t kWriteBackStep = std::size_t{8} << 20;
// The alignment that O_DIRECT requires of addresses, sizes and offsets on all disks we know.
constexpr std::size_t kBlock = 4096;
constexpr std::align_val_t kBlockAlignment{kBlock};
constexpr std::size_t kDirectStep = std::size_t{8} << 20;
// Smaller files may stay in the page cache for their next reader.
constexpr std::size_t kWorthDirect = std::size_t{32} << 20;

// Returns 0 or the errno; `bytes` is the rest that was not written.
int write_some(int fd, std::string_view& bytes, std::size_t step) {
  const ssize_t count = ::write(fd, bytes.data(), std::min(bytes.size(), step));
  if (count < 0) return errno == EINTR ? 0 : errno;
  bytes.remove_prefix(static_cast<std::size_t>(count));
  return 0;
}

base::Result<void> sync(int fd, const std::string& path) {
  if (::fsync(fd) != 0) return failed("sync", path, errno);
  return {};
}

base::Result<void> write_buffered(int fd, const std::string& path, const std::vector<std::string_view>& pieces,
                                  bool durable) {
  std::size_t written = 0;
  std::size_t asked = 0;
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const std::size_t before = piece.size();
      if (const int problem = write_some(fd, piece, kWriteStep)) return failed("write", path, problem);
      written += before - piece.size();
      if (!durable || written - asked < kWriteBackStep) continue;
      // Lets the disk work during the copy. Without support for it, fsync takes longer.
      ::sync_file_range(fd, static_cast<off64_t>(asked), static_cast<off64_t>(written - asked), SYNC_FILE_RANGE_WRITE);
      asked = written;
    }
  }
  return durable ? sync(fd, path) : base::Result<void>();
}

// Local file systems on which O_DIRECT avoids a copy. Network file systems are faster with the page cache.
bool set_direct(int fd) {
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0) return false;
  if (system.f_type != EXT4_SUPER_MAGIC && system.f_type != XFS_SUPER_MAGIC) return false;
  return ::fcntl(fd, F_SETFL, O_DIRECT) == 0;
}

class DirectWriter {
 public:
  DirectWriter(int fd, const std::string& path)
      : fd_(fd), path_(path), stage_(static_cast<char*>(::operator new(kDirectStep, kBlockAlignment))) {}

  base::Result<void> add(std::string_view piece) {
    while (!piece.empty()) {
      if (staged_ == 0 && is_aligned(piece)) {
        const std::size_t whole = piece.size() / kBlock * kBlock;
        TRIREME_TRY(write(piece.substr(0, whole)));
        piece.remove_prefix(whole);
        continue;
      }
      const std::size_t taken = std::min(piece.size(), kDirectStep - staged_);
      std::memcpy(stage_.get() + staged_, piece.data(), taken);
      piece.remove_prefix(taken);
      staged_ += taken;
      if (staged_ == kDirectStep) TRIREME_TRY(write({stage_.get(), std::exchange(staged_, 0)}));
    }
    return {};
  }

  base::Result<void> finish() {
    const std::size_t whole = staged_ / kBlock * kBlock;
    TRIREME_TRY(write({stage_.get(), whole}));
    // The last block is incomplete.
    ::fcntl(fd_, F_SETFL, 0);
    TRIREME_TRY(write({stage_.get() + whole, staged_ - whole}));
    return sync(fd_, path_);
  }

 private:
  static bool is_aligned(std::string_view piece) {
    return piece.size() >= kBlock && reinterpret_cast<std::uintptr_t>(piece.data()) % kBlock == 0;
  }

  base::Result<void> write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const int problem = write_some(fd_, bytes, kDirectStep);
      // The disk has larger blocks, or a write ended inside one: write the rest through the page cache.
      const bool refused = problem == EINVAL && (::fcntl(fd_, F_GETFL) & O_DIRECT) != 0;
      if (refused && ::fcntl(fd_, F_SETFL, 0) == 0) continue;
      if (problem != 0) return failed("write", path_, problem);
    }
    return {};
  }

  int fd_;
  const std::string& path_;
  struct Free {
    void operator()(char* stage) const { ::operator delete(stage, kBlockAlignment); }
  };
  std::unique_ptr<char, Free> stage_;
  std::size_t staged_ = 0;  // bytes in it; always at a multiple of kBlock in the file
};

}  // namespace

base::Result<void> write_pieces(int fd, const std::string& path, const std::vector<std::string_view>& pieces,
                                bool durable) {
  std::size_t size = 0;
  for (std::string_view piece : pieces) size += piece.size();
  if (!durable || size < kWorthDirect || !set_direct(fd)) return write_buffered(fd, path, pieces, durable);
  DirectWriter writer(fd, path);
  for (std::string_view piece : pieces) TRIREME_TRY(writer.add(piece));
  return writer.finish();
}

}  // namespace trireme::checkpoint
