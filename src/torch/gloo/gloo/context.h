#pragma once

#include <chrono>

// What <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp> needs of gloo, whose own headers libtorch comes without.
// Declarations only: no object of these types is made, looked into or destroyed here. process_group.cpp alone may
// include them.

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds);
};
}  // namespace gloo
