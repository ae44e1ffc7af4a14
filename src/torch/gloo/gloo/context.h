#pragma once

#include <chrono>

// The parts of gloo that <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp> needs; libtorch does not ship gloo's
// headers. Declarations only: no object of these types is created, accessed or destroyed here. Only process_group.cpp
// may include them.

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds);
};
}  // namespace gloo
