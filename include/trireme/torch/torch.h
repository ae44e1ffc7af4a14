#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/export.h"
#include "trireme/torch/tensor.h"
#include "trireme/trireme.h"

// What a training function that uses libtorch needs: its device, and a store for c10d process groups that needs no port
// and survives the death of any rank.

namespace trireme::torch {

// The first of this worker's GPUs, or the CPU. CUDA_VISIBLE_DEVICES is set per worker, so the first is always index 0.
TRIREME_API c10::Device get_device();

// The gang's rendezvous store as libtorch takes it: pass it to a c10d backend.
TRIREME_API c10::intrusive_ptr<c10d::Store> store();

}  // namespace trireme::torch
