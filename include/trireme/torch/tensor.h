#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/export.h"
#include "trireme/tensor.h"

// Tensors of libtorch in states (trireme/state.h), and back.

namespace trireme::torch {

// The same memory, which stays as long as one of them does.
TRIREME_API at::Tensor to_torch(const Tensor& tensor);

// The same memory where the tensor is dense and contiguous on the CPU, else a copy that is. Throws ValueError for what
// a state cannot hold: sparse and quantized tensors, and types without a name in tensor.h.
TRIREME_API Tensor from_torch(const at::Tensor& tensor);

}  // namespace trireme::torch
