#include "checkpoint/snapshot_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

namespace trireme::checkpoint {
namespace {

base::Error failed(std::size_t size, int error_number) {
  return base::system_error(
      fmt::format("not enough memory to copy a state of {} bytes; report it with SYNC, or reduce its size", size),
      error_number);
}

}  // namespace

base::Result<std::unique_ptr<SnapshotBuffer>> SnapshotBuffer::create() {
  base::Fd tensors(::memfd_create("trireme_tensors", MFD_CLOEXEC));
  base::Fd tree(::memfd_create("trireme_tree", MFD_CLOEXEC));
  if (!tensors.valid() || !tree.valid()) return base::system_error("could not create an in-memory file", errno);
  return std::unique_ptr<SnapshotBuffer>(new SnapshotBuffer(std::move(tensors), std::move(tree)));
}

SnapshotBuffer::~SnapshotBuffer() {
  pin_.reset();
  if (data_) ::munmap(data_, mapped_);
}

base::Result<void> SnapshotBuffer::resize(std::size_t size) {
  if (size != size_) {
    // Pages behind the new end are freed. If the file grows again, it has other pages there than those that are pinned.
    pin_.reset();
    pin_tried_ = false;
  }
  // Processes that open the file must see the end of the content. The pages before the end stay allocated.
  if (::ftruncate(tensors_.get(), static_cast<off_t>(size)) != 0) return failed(size, errno);
  size_ = size;
  if (size <= mapped_) return {};
  void* moved = data_ ? ::mremap(data_, mapped_, size, MREMAP_MAYMOVE)
                      : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, tensors_.get(), 0);
  if (moved == MAP_FAILED) return failed(size, errno);
  data_ = static_cast<std::byte*>(moved);
  mapped_ = size;
  return {};
}

void SnapshotBuffer::pin_for(const DeviceBytes& device) {
  if (pin_tried_) return;
  pin_tried_ = true;
  pin_ = device.pin(data_, size_);
}

base::Result<void> SnapshotBuffer::write_tree(std::string_view json) {
  if (::ftruncate(tree_.get(), static_cast<off_t>(json.size())) != 0) return failed(json.size(), errno);
  for (std::size_t at = 0; at < json.size();) {
    const ssize_t count = ::pwrite(tree_.get(), json.data() + at, json.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(json.size(), errno);
    at += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace trireme::checkpoint
