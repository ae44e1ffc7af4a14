#pragma once

#include "trireme/value.h"

namespace torch::optim {
class LBFGS;
}

namespace trireme::torch::detail {

// Like optimizer_state.h, for LBFGS: it has one state for all parameters, with lists in it, and different options.
Dict lbfgs_state(const ::torch::optim::LBFGS& optimizer);
void load_lbfgs(::torch::optim::LBFGS& optimizer, const Dict& state);

}  // namespace trireme::torch::detail
