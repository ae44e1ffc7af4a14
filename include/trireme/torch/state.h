#pragma once

#include "trireme/checkpoint.h"
#include "trireme/export.h"
#include "trireme/value.h"

// The state of a training, interchangeable with Python: Python reads it with load_state() and passes it to
// load_state_dict(), and vice versa.

namespace torch::nn {
class Module;
}
namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace trireme::torch {

// A checkpoint to report: "model" has the content of Python's module.state_dict(), "optimizer" that of
// optimizer.state_dict(), and `extras` are added at the top level. It refers to the memory of the module and the
// optimizer: report it before the next step, in any mode. Optimizers: SGD, Adam, AdamW, RMSprop, Adagrad, LBFGS.
TRIREME_API Checkpoint save(const ::torch::nn::Module& module, const ::torch::optim::Optimizer& optimizer,
                            Dict extras = {});
TRIREME_API Checkpoint save(const ::torch::nn::Module& module, Dict extras = {});

// Returns the extras. If the state does not match, throws ValueError that names the missing and unexpected keys and the
// tensors of a different type or shape, and changes nothing.
TRIREME_API Dict load(const Checkpoint& checkpoint, ::torch::nn::Module& module, ::torch::optim::Optimizer& optimizer);
TRIREME_API Dict load(const Checkpoint& checkpoint, ::torch::nn::Module& module);

// The same for each part, to build states manually.
TRIREME_API Dict state_of(const ::torch::nn::Module& module);
TRIREME_API void load_state(::torch::nn::Module& module, const Dict& state);
TRIREME_API Dict state_of(const ::torch::optim::Optimizer& optimizer);
TRIREME_API void load_state(::torch::optim::Optimizer& optimizer, const Dict& state);
// The steps of the scheduler; the learning rates are part of the optimizer.
TRIREME_API Dict state_of(const ::torch::optim::LRScheduler& scheduler);
TRIREME_API void load_state(::torch::optim::LRScheduler& scheduler, const Dict& state);
// Includes its options, as in Python.
TRIREME_API Dict state_of(const ::torch::optim::ReduceLROnPlateauScheduler& scheduler);
TRIREME_API void load_state(::torch::optim::ReduceLROnPlateauScheduler& scheduler, const Dict& state);

// The random number generators of this rank: "cpu" as in Python's torch.get_rng_state(), "cuda" for its GPU.
TRIREME_API Dict rng_state();
TRIREME_API void set_rng_state(const Dict& state);

}  // namespace trireme::torch
