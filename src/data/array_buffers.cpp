#include "data/array_buffers.h"

#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

#include "data/type_format.h"

namespace trireme::data {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLarge = std::size_t{1} << 20;

struct ExportedArray {
  std::shared_ptr<const void> owner;  // the batch, shared with its handles
  std::array<const void*, 3> buffers{};
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> pointers;
};

void release_exported(ArrowArray* array) {
  const std::unique_ptr<ExportedArray> exported(static_cast<ExportedArray*>(array->private_data));
  for (auto& child : exported->children) {
    if (child.release) child.release(&child);
  }
  array->release = nullptr;
}

ArrowArray finish(std::int64_t length, std::int64_t buffers, std::unique_ptr<ExportedArray> exported) {
  for (auto& child : exported->children) exported->pointers.push_back(&child);
  ArrowArray made{};
  made.length = length;
  made.n_buffers = buffers;
  made.buffers = exported->buffers.data();
  made.n_children = static_cast<std::int64_t>(exported->children.size());
  made.children = exported->pointers.empty() ? nullptr : exported->pointers.data();
  made.release = release_exported;
  made.private_data = exported.release();
  return made;
}

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

ArrowArray export_array(const Type& type, const Array& array, const std::shared_ptr<const void>& owner) {
  auto exported = std::make_unique<ExportedArray>();
  exported->owner = owner;
  exported->buffers = {array.validity.data(), array.values.data(), array.text.data()};
  for (std::size_t i = 0; i < array.children.size(); ++i) {
    exported->children.push_back(export_array(type.children[i], array.children[i], owner));
  }
  ArrowArray made = finish(array.length, buffer_count(type.kind), std::move(exported));
  made.null_count = array.null_count;
  return made;
}

ArrowArray export_struct(std::int64_t rows, std::vector<ArrowArray> columns, const std::shared_ptr<const void>& owner) {
  auto exported = std::make_unique<ExportedArray>();
  exported->owner = owner;
  exported->children = std::move(columns);
  return finish(rows, buffer_count(Kind::kStruct), std::move(exported));
}

}  // namespace trireme::data
