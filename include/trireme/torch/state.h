#pragma once

#include "trireme/checkpoint.h"
#include "trireme/export.h"
#include "trireme/value.h"

// The state of a training as both languages read it: what is saved here is what Python gets from load_state() and gives
// to load_state_dict(), and the other way round.

namespace torch::nn {
class Module;
}
namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace trireme::torch {

// A checkpoint to report: "model" is what Python's module.state_dict() has, "optimizer" what optimizer.state_dict()
// has, `extras` stand beside them. It refers to the memory of the module and of the optimizer: report it before the
// next step, in any mode. Optimizers: SGD, Adam, AdamW, RMSprop, Adagrad, LBFGS.
TRIREME_API Checkpoint save(const ::torch::nn::Module& module, const ::torch::optim::Optimizer& optimizer,
                            Dict extras = {});
TRIREME_API Checkpoint save(const ::torch::nn::Module& module, Dict extras = {});

// Returns the rest: the extras. Nothing is changed where something does not fit: throws ValueError that names the keys
// that are missing or unexpected, and the tensors of another type or shape.
TRIREME_API Dict load(const Checkpoint& checkpoint, ::torch::nn::Module& module, ::torch::optim::Optimizer& optimizer);
TRIREME_API Dict load(const Checkpoint& checkpoint, ::torch::nn::Module& module);

// The same for each part, for states that are put together by hand.
TRIREME_API Dict state_of(const ::torch::nn::Module& module);
TRIREME_API void load_state(::torch::nn::Module& module, const Dict& state);
TRIREME_API Dict state_of(const ::torch::optim::Optimizer& optimizer);
TRIREME_API void load_state(::torch::optim::Optimizer& optimizer, const Dict& state);
// Its steps; the learning rates are part of the optimizer.
TRIREME_API Dict state_of(const ::torch::optim::LRScheduler& scheduler);
TRIREME_API void load_state(::torch::optim::LRScheduler& scheduler, const Dict& state);
// Its options as well, as Python has it.
TRIREME_API Dict state_of(const ::torch::optim::ReduceLROnPlateauScheduler& scheduler);
TRIREME_API void load_state(::torch::optim::ReduceLROnPlateauScheduler& scheduler, const Dict& state);

// The random numbers of this rank: "cpu" is what Python's torch.get_rng_state() returns, "cuda" that of its GPU.
TRIREME_API Dict rng_state();
TRIREME_API void set_rng_state(const Dict& state);

}  // namespace trireme::torch
