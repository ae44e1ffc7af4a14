#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/export.h"
#include "trireme/tensor.h"

// Converts between libtorch tensors and the tensors in states (trireme/state.h).

namespace trireme::torch {

// Shares the memory, which is released with the last of both.
TRIREME_API at::Tensor to_torch(const Tensor& tensor);

// Shares the memory if the tensor is dense and contiguous on the CPU, otherwise copies it. Throws ValueError for what a
// state cannot contain: sparse and quantized tensors, and types without a name in tensor.h.
TRIREME_API Tensor from_torch(const at::Tensor& tensor);

}  // namespace trireme::torch
