#include "plan/value_numbers.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <memory>

namespace trireme::plan {
namespace {

using Kind = ValueType::Kind;

constexpr std::int64_t kExactInDouble = std::int64_t{1} << 53;
constexpr std::int64_t kExactInFloat = std::int64_t{1} << 24;

// Calls with a value of the element type.
template <typename F>
decltype(auto) for_dtype(DType dtype, F call) {
  switch (dtype) {
    case DType::kU8: return call(std::uint8_t{});
    case DType::kI8: return call(std::int8_t{});
    case DType::kU16: return call(std::uint16_t{});
    case DType::kI16: return call(std::int16_t{});
    case DType::kU32: return call(std::uint32_t{});
    case DType::kI32: return call(std::int32_t{});
    case DType::kU64: return call(std::uint64_t{});
    case DType::kF32: return call(float{});
    case DType::kF64: return call(double{});
    default: return call(std::int64_t{});
  }
}

// A number of any type, converted.
template <typename To>
To number_as(const void* from, DType dtype) {
  return for_dtype(dtype, [&](auto kind) {
    decltype(kind) value;
    std::memcpy(&value, from, sizeof value);
    return static_cast<To>(value);
  });
}

bool is_whole(DType dtype) { return dtype != DType::kF32 && dtype != DType::kF64 && dtype != DType::kF16; }

// An integer at `from`, in an element of type `to`.
std::optional<std::string> why_lost(const void* from, DType dtype, DType to) {
  if (dtype == to || !is_whole(dtype) || dtype == DType::kBool) return {};
  if (dtype == DType::kU64 && number_as<std::uint64_t>(from, dtype) > std::numeric_limits<std::int64_t>::max()) {
    return fmt::format("Integer value {} not in range: 0 to {}", number_as<std::uint64_t>(from, dtype),
                       to == DType::kI64 ? std::numeric_limits<std::int64_t>::max() : kExactInDouble);
  }
  if (is_whole(to)) return {};
  const std::int64_t most = to == DType::kF32 ? kExactInFloat : kExactInDouble;
  const auto value = number_as<std::int64_t>(from, dtype);
  if (-most <= value && value <= most) return {};
  return fmt::format("Integer value {} not in range: {} to {}", value, -most, most);
}

Value value_at(const Tensor& tensor, std::int64_t index) {
  const DType dtype = tensor.dtype();
  const auto* at = static_cast<const char*>(tensor.data()) + static_cast<std::size_t>(index) * size_of(dtype);
  if (dtype == DType::kBool) return *at != 0;
  if (dtype == DType::kI64) return number_as<std::int64_t>(at, dtype);
  if (dtype == DType::kF64) return number_as<double>(at, dtype);
  Tensor one(dtype, {});
  std::memcpy(one.data(), at, size_of(dtype));
  return one;
}

}  // namespace

bool has_numbers(const ValueType& type) {
  if (type.kind == Kind::kFloat || type.kind == Kind::kInt) return true;
  if (type.kind == Kind::kTensor || type.kind == Kind::kRagged) return true;
  for (const auto& [name, child] : type.children) {
    if (has_numbers(child)) return true;
  }
  return false;
}

std::optional<std::string> why_lost(const Value& value, const ValueType& type) {
  if (value.is_null()) return {};
  if (type.kind == Kind::kDict) {
    for (const auto& [name, child] : type.children) {
      const Value* found = value.as_dict().find(name);
      if (auto why = found ? why_lost(*found, child) : std::nullopt) return why;
    }
    return {};
  }
  const auto* tensor = value.get_if<Tensor>();
  if (type.kind == Kind::kList) {
    for (const auto& each : tensor ? elements_of(*tensor) : value.as_list()) {
      if (auto why = why_lost(each, type.children.front().second)) return why;
    }
    return {};
  }
  const bool tensors = type.kind == Kind::kTensor || type.kind == Kind::kRagged;
  const auto dtype = tensors ? std::optional(type.dtype) : dtype_of(type);
  if (!dtype) return {};
  if (const auto* whole = value.get_if<std::int64_t>()) return why_lost(whole, DType::kI64, *dtype);
  if (!tensor || tensor->dtype() == *dtype) return {};
  for (std::int64_t i = 0; i < tensor->num_elements(); ++i) {
    const auto* at = static_cast<const char*>(tensor->data()) + static_cast<std::size_t>(i) * size_of(tensor->dtype());
    if (auto why = why_lost(at, tensor->dtype(), *dtype)) return why;
  }
  return {};
}

void store_number(const Value& value, DType dtype, void* out) {
  const auto* tensor = value.get_if<Tensor>();
  if (tensor && tensor->dtype() == dtype) {
    std::memcpy(out, tensor->data(), size_of(dtype));
    return;
  }
  for_dtype(dtype, [&](auto kind) {
    const auto* whole = value.get_if<std::int64_t>();
    if (tensor) kind = number_as<decltype(kind)>(tensor->data(), tensor->dtype());
    else kind = whole ? static_cast<decltype(kind)>(*whole) : static_cast<decltype(kind)>(value.as_double());
    std::memcpy(out, &kind, sizeof kind);
  });
}

bool is_true(const Value& value) {
  const auto* tensor = value.get_if<Tensor>();
  return tensor ? *static_cast<const char*>(tensor->data()) != 0 : value.as_bool();
}

Tensor with_dtype(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor made(dtype, tensor.shape());
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    const auto* from = static_cast<const char*>(tensor.data()) + index * size_of(tensor.dtype());
    for_dtype(dtype, [&](auto kind) {
      kind = number_as<decltype(kind)>(from, tensor.dtype());
      std::memcpy(static_cast<char*>(made.data()) + index * sizeof kind, &kind, sizeof kind);
    });
  }
  return made;
}

List elements_of(const Tensor& tensor) {
  const std::vector<std::int64_t> shape(tensor.shape().begin() + 1, tensor.shape().end());
  List made;
  for (std::int64_t i = 0; i < tensor.shape().front(); ++i) {
    if (shape.empty()) {
      made.push_back(value_at(tensor, i));
      continue;
    }
    Tensor row(tensor.dtype(), shape);
    std::memcpy(row.data(), static_cast<const char*>(tensor.data()) + static_cast<std::size_t>(i) * row.num_bytes(),
                row.num_bytes());
    made.emplace_back(std::move(row));
  }
  return made;
}

}  // namespace trireme::plan
