#pragma once

#include "trireme/value.h"

namespace torch::optim {
class Optimizer;
}

namespace trireme::torch::detail {

// In the layout of Python's optimizer.state_dict().
Dict optimizer_state(const ::torch::optim::Optimizer& optimizer);
// Loads all or nothing. Throws ValueError that names the mismatch.
void load_optimizer(::torch::optim::Optimizer& optimizer, const Dict& state);

}  // namespace trireme::torch::detail
