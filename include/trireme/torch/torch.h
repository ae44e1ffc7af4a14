#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/export.h"
#include "trireme/torch/data.h"
#include "trireme/torch/dataset.h"
#include "trireme/torch/model.h"
#include "trireme/torch/precision.h"
#include "trireme/torch/state.h"
#include "trireme/torch/tensor.h"
#include "trireme/trireme.h"

// For training functions that use libtorch: model.h trains a module on all ranks, data.h splits a libtorch dataset and
// dataset.h a Trireme dataset between the ranks, precision.h computes in narrower types, state.h saves and loads state
// in the same format as Python.

namespace c10d {
class ProcessGroup;
}

namespace trireme::torch {

// The first of this worker's GPUs, or the CPU. Its index is its position among the GPUs that the process sees: 0, or
// the local rank with TrainerOptions.share_cuda_visible_devices.
TRIREME_API c10::Device get_device();

// The gang's rendezvous store for libtorch: pass it to a c10d backend.
TRIREME_API c10::intrusive_ptr<c10d::Store> store();

struct ProcessGroupOptions {
  double timeout_s = 1800;  // time limit of a collective operation, and of the rendezvous
};

// A process group of all ranks, for custom communication; every rank must call it. Gloo for tensors on the CPU, NCCL
// for those on a GPU if this libtorch has it. Its methods need <torch/csrc/distributed/c10d/ProcessGroup.hpp>.
TRIREME_API c10::intrusive_ptr<c10d::ProcessGroup> new_process_group(const ProcessGroupOptions& options = {});

// For process groups that the function creates itself; new_process_group() does it. Ends their collectives when the
// gang is restarted or resized: with NCCL a rank would otherwise wait forever for one that has exited.
TRIREME_API void abort_on_cancel(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace trireme::torch
