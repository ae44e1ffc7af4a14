#pragma once

#include <memory>

#include "base/network.h"
#include "boosting/lightgbm_library.h"

namespace trireme::boosting {

// LightGBM's connections among the workers of this attempt. One worker alone has none.
class LightgbmNetwork {
 public:
  explicit LightgbmNetwork(const LightgbmLibrary& library);
  // Not in a destructor: after a failure it would wait for ranks that have exited.
  void finish();

 private:
  const LightgbmLibrary& library_;
  std::unique_ptr<base::ReservedPort> port_;
};

}  // namespace trireme::boosting
