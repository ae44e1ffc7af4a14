#include "trireme/torch/tensor.h"

#include <ATen/ops/from_blob.h>

#include <array>
#include <utility>

#include "trireme/value.h"

namespace trireme::torch {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 19> kTypes = {{
    {DType::kBool, at::kBool},
    {DType::kU8, at::kByte},
    {DType::kI8, at::kChar},
    {DType::kU16, at::kUInt16},
    {DType::kI16, at::kShort},
    {DType::kU32, at::kUInt32},
    {DType::kI32, at::kInt},
    {DType::kU64, at::kUInt64},
    {DType::kI64, at::kLong},
    {DType::kF8E4M3, at::kFloat8_e4m3fn},
    {DType::kF8E5M2, at::kFloat8_e5m2},
    {DType::kF16, at::kHalf},
    {DType::kBF16, at::kBFloat16},
    {DType::kF32, at::kFloat},
    {DType::kF64, at::kDouble},
    {DType::kC64, at::kComplexFloat},
    {DType::kF8E8M0, at::kFloat8_e8m0fnu},
    {DType::kF8E4M3Fnuz, at::kFloat8_e4m3fnuz},
    {DType::kF8E5M2Fnuz, at::kFloat8_e5m2fnuz},
}};

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  throw ValueError(std::string("libtorch has no type ") + name_of(dtype));
}

DType dtype_of(at::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  throw ValueError(std::string("a state cannot contain tensors of type ") + c10::toString(type) +
                   ": convert the tensor, or view it as another type");
}

}  // namespace

at::Tensor to_torch(const Tensor& tensor) {
  // The deleter owns the handle: libtorch releases the memory by destroying it.
  return at::from_blob(
      tensor.data(), tensor.shape(), [tensor](void*) {}, at::TensorOptions().dtype(scalar_type_of(tensor.dtype())));
}

Tensor from_torch(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    throw ValueError("a state cannot contain sparse or quantized tensors: store to_dense() or dequantize()");
  }
  const DType dtype = dtype_of(tensor.scalar_type());
  auto plain = std::make_shared<at::Tensor>(tensor.detach().cpu().resolve_conj().resolve_neg().contiguous());
  return Tensor::view(dtype, plain->sizes().vec(), plain->mutable_data_ptr(), plain);
}

}  // namespace trireme::torch
