#pragma once

#include <memory>

#include "boosting/lightgbm_library.h"
#include "boosting/reserved_port.h"

namespace trireme::boosting {

// LightGBM's connections among the workers of this attempt. One worker alone has none.
class LightgbmNetwork {
 public:
  explicit LightgbmNetwork(const LightgbmLibrary& library);
  // Not in a destructor: after a failure it would wait for ranks that have exited.
  void finish();

 private:
  const LightgbmLibrary& library_;
  std::unique_ptr<ReservedPort> port_;
};

}  // namespace trireme::boosting
