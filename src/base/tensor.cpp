#include "trireme/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "base/check.h"
#include "base/device_copies.h"
#include "base/text.h"
#include "trireme/value.h"

namespace trireme {
namespace {

struct Kind {
  const char* name;
  std::size_t size;
};

// In the order of DType.
constexpr std::array<Kind, 19> kKinds = {{{"BOOL", 1},
                                          {"U8", 1},
                                          {"I8", 1},
                                          {"U16", 2},
                                          {"I16", 2},
                                          {"U32", 4},
                                          {"I32", 4},
                                          {"U64", 8},
                                          {"I64", 8},
                                          {"F8_E4M3", 1},
                                          {"F8_E5M2", 1},
                                          {"F16", 2},
                                          {"BF16", 2},
                                          {"F32", 4},
                                          {"F64", 8},
                                          {"C64", 8},
                                          {"F8_E8M0", 1},
                                          {"F8_E4M3FNUZ", 1},
                                          {"F8_E5M2FNUZ", 1}}};

const Kind& kind_of(DType dtype) { return kKinds.at(static_cast<std::size_t>(dtype)); }

// The number of elements. Also checks that the number of bytes does not overflow.
std::int64_t count(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  std::int64_t bytes = 0;
  bool fits = true;
  for (std::int64_t extent : shape) {
    fits = fits && extent >= 0 && !__builtin_mul_overflow(elements, extent, &elements);
  }
  fits = fits && !__builtin_mul_overflow(elements, static_cast<std::int64_t>(size_of(dtype)), &bytes);
  if (!fits) throw ValueError(fmt::format("invalid tensor shape: [{}]", fmt::join(shape, ", ")));
  return elements;
}

}  // namespace

const char* name_of(DType dtype) { return kind_of(dtype).name; }

std::optional<DType> find_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (name == kKinds[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

DType dtype_of(std::string_view name) {
  if (const auto found = find_dtype(name)) return *found;
  std::vector<const char*> names;
  for (const auto& kind : kKinds) names.push_back(kind.name);
  throw ValueError(fmt::format("unknown tensor type '{}'; known types: {}", name, fmt::join(names, ", ")));
}

std::size_t size_of(DType dtype) { return kind_of(dtype).size; }

struct Tensor::Storage {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::int64_t elements;
  void* data;
  std::shared_ptr<const void> owner;  // keeps the memory alive

  // Null: `data` is the memory. Otherwise it is allocated and filled when it is first needed.
  std::shared_ptr<const DeviceBytes> device = {};
  mutable std::mutex mutex = {};
  mutable std::shared_ptr<std::byte[]> fetched = {};

  std::shared_ptr<std::byte[]> in_host_memory() const {
    const std::lock_guard lock(mutex);
    return fetched;
  }
  std::size_t num_bytes() const { return static_cast<std::size_t>(elements) * size_of(dtype); }
};

Tensor::Tensor(DType dtype, std::vector<std::int64_t> shape) {
  const std::int64_t elements = count(dtype, shape);
  auto memory = std::shared_ptr<std::byte[]>(new std::byte[static_cast<std::size_t>(elements) * size_of(dtype)]());
  storage_ = std::make_shared<const Storage>(dtype, std::move(shape), elements, memory.get(), memory);
}

Tensor Tensor::view(DType dtype, std::vector<std::int64_t> shape, void* data, std::shared_ptr<const void> owner) {
  const std::int64_t elements = count(dtype, shape);
  return Tensor(std::make_shared<const Storage>(dtype, std::move(shape), elements, data, std::move(owner)));
}

Tensor Tensor::on_device(DType dtype, std::vector<std::int64_t> shape, std::shared_ptr<const DeviceBytes> bytes) {
  const std::int64_t elements = count(dtype, shape);
  return Tensor(std::make_shared<const Storage>(dtype, std::move(shape), elements, nullptr, nullptr, std::move(bytes)));
}

std::shared_ptr<const DeviceBytes> Tensor::on_device() const {
  return storage_->device && !storage_->in_host_memory() ? storage_->device : nullptr;
}

void Tensor::fetch(const std::vector<Tensor>& tensors) {
  std::vector<std::pair<const Storage*, std::shared_ptr<std::byte[]>>> made;
  base::DeviceCopies copies;
  for (const auto& tensor : tensors) {
    auto device = tensor.on_device();
    if (!device) continue;
    const Storage* storage = tensor.storage_.get();
    made.emplace_back(storage, new std::byte[storage->num_bytes()]);
    copies.add(std::move(device), made.back().second.get());
  }
  if (auto failure = copies.run(); !failure.empty()) throw std::runtime_error(failure);
  for (auto& [storage, memory] : made) {
    const std::lock_guard lock(storage->mutex);
    if (!storage->fetched) storage->fetched = std::move(memory);  // another thread may have been faster
  }
}

DType Tensor::dtype() const { return storage_->dtype; }
const std::vector<std::int64_t>& Tensor::shape() const { return storage_->shape; }
std::int64_t Tensor::num_elements() const { return storage_->elements; }
std::size_t Tensor::num_bytes() const { return static_cast<std::size_t>(storage_->elements) * size_of(dtype()); }
void* Tensor::data() const {
  if (!storage_->device) return storage_->data;
  if (on_device()) fetch({*this});
  return storage_->in_host_memory().get();
}

std::string Tensor::describe() const { return fmt::format("{}[{}]", name_of(dtype()), fmt::join(shape(), ", ")); }

bool Tensor::operator==(const Tensor& other) const {
  return dtype() == other.dtype() && shape() == other.shape() &&
         (num_bytes() == 0 || std::memcmp(data(), other.data(), num_bytes()) == 0);
}

void Tensor::expect_elements(std::size_t count) const {
  if (count != static_cast<std::size_t>(num_elements())) {
    throw ValueError(fmt::format("got {} for {}", base::count_of(count, "value"), describe()));
  }
}

void Tensor::expect(DType dtype) const {
  if (dtype != storage_->dtype) {
    throw ValueError(fmt::format("cannot read {} as {}", describe(), name_of(dtype)));
  }
}

}  // namespace trireme
