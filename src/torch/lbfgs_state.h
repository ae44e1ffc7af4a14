#pragma once

#include "trireme/value.h"

namespace torch::optim {
class LBFGS;
}

namespace trireme::torch::detail {

// As optimizer_state.h: LBFGS keeps one state of all parameters, with lists in it, and has options of its own kinds.
Dict lbfgs_state(const ::torch::optim::LBFGS& optimizer);
void load_lbfgs(::torch::optim::LBFGS& optimizer, const Dict& state);

}  // namespace trireme::torch::detail
