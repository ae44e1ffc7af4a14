#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/tensor.h"

namespace trireme::torch::detail {

// Like from_torch(), but a tensor on a device with streams stays there until its bytes are needed: a snapshot copies it
// directly into its own memory.
Tensor state_tensor(const at::Tensor& tensor);

}  // namespace trireme::torch::detail
