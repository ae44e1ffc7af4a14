#pragma once

#include <string>
#include <vector>

#include "trireme/result.h"

namespace trireme::api {

// The outcome of a fit(). A worker that runs main() again repeats the driver's outcome of every earlier fit(), so that
// main() takes the same path.
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
