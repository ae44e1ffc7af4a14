#include "data/array_buffers.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace trireme::data {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLarge = std::size_t{1} << 20;

}  // namespace

void FreeBuffer::operator()(std::byte* memory) const {
  if (mapped == 0) std::free(memory);
  else ::munmap(memory, mapped);
}

Buffer Buffer::of(std::int64_t bytes) {
  const std::size_t used = static_cast<std::size_t>(bytes);
  const std::size_t padded = used == 0 ? kAlignment : (used + kAlignment - 1) / kAlignment * kAlignment;
  Buffer made;
  if (padded >= kLarge) {
    void* memory = ::mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    // Rows are read from it in random order. Falls back to small pages if there are no large ones.
    (void)::madvise(memory, padded, MADV_HUGEPAGE);
    made.memory_ = {static_cast<std::byte*>(memory), FreeBuffer{padded}};
  } else {
    made.memory_ = {static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded)), FreeBuffer{}};
    if (!made.memory_) throw std::bad_alloc();
    std::memset(made.data() + used, 0, padded - used);
  }
  made.bytes_ = bytes;
  return made;
}

Buffer Buffer::zeroed(std::int64_t bytes) {
  Buffer made = of(bytes);
  std::memset(made.data(), 0, static_cast<std::size_t>(bytes));
  return made;
}

std::int64_t Array::bytes() const {
  std::int64_t sum = validity.bytes() + values.bytes() + text.bytes();
  for (const auto& child : children) sum += child.bytes();
  return sum;
}

}  // namespace trireme::data
