#pragma once

#include "trireme/value.h"

namespace torch::optim {
class Optimizer;
}

namespace trireme::torch::detail {

// In the layout of Python's optimizer.state_dict().
Dict optimizer_state(const ::torch::optim::Optimizer& optimizer);
// All or nothing. Throws ValueError that says what does not fit.
void load_optimizer(::torch::optim::Optimizer& optimizer, const Dict& state);

}  // namespace trireme::torch::detail
