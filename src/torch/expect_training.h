#pragma once

namespace trireme::torch::detail {

// Throws std::runtime_error naming `caller` (not context()) outside of a training function.
void expect_training(const char* caller);

}  // namespace trireme::torch::detail
