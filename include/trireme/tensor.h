#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/export.h"

// A tensor without a dependency on libtorch or numpy: a type, a shape and bytes in row-major order.

namespace trireme {

enum class DType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF8E4M3,
  kF8E5M2,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
};

// "F32", "BF16", "I64", ...: the names that safetensors uses.
TRIREME_API const char* name_of(DType dtype);
// Throws ValueError that lists the known names.
TRIREME_API DType dtype_of(std::string_view name);
TRIREME_API std::optional<DType> find_dtype(std::string_view name);
TRIREME_API std::size_t size_of(DType dtype);

namespace detail {
template <typename T>
struct DTypeOf;
}

// The bytes of a tensor that is not in host memory, for example on a GPU.
class TRIREME_API DeviceBytes {
 public:
  virtual ~DeviceBytes() = default;

  struct Copy {
    const DeviceBytes* from;  // of the same class
    void* to;
  };
  // Copies all of them, and returns when the copies are complete: why that failed, or an empty text.
  virtual std::string copy_to_host(const std::vector<Copy>& copies) const = 0;
  // Makes copies to this host memory faster, until the returned object is destroyed. Null: not possible.
  virtual std::shared_ptr<void> pin(void* memory, std::size_t size) const = 0;
};

// A handle: copies share the bytes.
class TRIREME_API Tensor {
 public:
  // Allocates zeroed memory.
  Tensor(DType dtype, std::vector<std::int64_t> shape);
  // A view of external memory, kept alive by `owner`; if `owner` is empty, by the caller. The memory must be aligned
  // for the element type.
  static Tensor view(DType dtype, std::vector<std::int64_t> shape, void* data, std::shared_ptr<const void> owner = {});
  // A tensor in the memory of a device. Its bytes are copied to host memory when they are first needed; they must not
  // change before.
  static Tensor on_device(DType dtype, std::vector<std::int64_t> shape, std::shared_ptr<const DeviceBytes> bytes);
  // Copies the bytes of those tensors that are still on a device, all at once. Throws std::runtime_error if that fails.
  static void fetch(const std::vector<Tensor>& tensors);
  // A copy of the values, one-dimensional unless a shape is given.
  template <typename T>
  static Tensor of(const std::vector<T>& values, std::vector<std::int64_t> shape = {}) {
    if (shape.empty()) shape.push_back(static_cast<std::int64_t>(values.size()));
    Tensor made(detail::DTypeOf<T>::value, std::move(shape));
    made.expect_elements(values.size());
    std::copy(values.begin(), values.end(), made.values<T>().begin());
    return made;
  }
  // Zero-dimensional.
  template <typename T>
  static Tensor scalar(T value) {
    Tensor made(detail::DTypeOf<T>::value, {});
    made.values<T>()[0] = value;
    return made;
  }

  DType dtype() const;
  const std::vector<std::int64_t>& shape() const;
  std::int64_t num_elements() const;
  std::size_t num_bytes() const;
  void* data() const;
  // Null if the bytes are in host memory, or have been copied there.
  std::shared_ptr<const DeviceBytes> on_device() const;

  // The elements. Throws ValueError if T is not the element type.
  template <typename T>
  std::span<T> values() const {
    expect(detail::DTypeOf<std::remove_const_t<T>>::value);
    return {static_cast<T*>(data()), static_cast<std::size_t>(num_elements())};
  }

  // "F32[2, 3]".
  std::string describe() const;

  // Same type, same shape, same bytes.
  bool operator==(const Tensor& other) const;

 private:
  struct Storage;
  explicit Tensor(std::shared_ptr<const Storage> storage) : storage_(std::move(storage)) {}
  void expect_elements(std::size_t count) const;
  void expect(DType dtype) const;

  std::shared_ptr<const Storage> storage_;  // shared by copies
};

namespace detail {
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<std::uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::kI16;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::kU32;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr DType value = DType::kU64;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
}  // namespace detail

}  // namespace trireme
