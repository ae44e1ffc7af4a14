#pragma once

#include <string>
#include <vector>

#include "trireme/result.h"

namespace trireme::api {

// How a fit() ended. A worker that goes through main() again must see at every earlier fit() what the driver saw there,
// or main() might take another way.
struct PastFit {
  enum class End { kReturned, kFailed, kRefused, kThrew };

  End end = End::kReturned;
  Result result;                        // kReturned
  std::string what;                     // of the exception otherwise
  std::vector<WorkerFailure> failures;  // kFailed

  Dict encode() const;
  static PastFit decode(const Dict& dict);

  // Returns or throws as that fit() did.
  Result repeat() const;
};

}  // namespace trireme::api
