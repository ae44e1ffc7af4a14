#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace trireme::storage {

// How often calls to remote storage are retried: by default five tries in about 15 s.
struct RetryPolicy {
  int tries = 5;
  base::Seconds first_pause{1.0};              // doubles with every try
  double jitter = 0.25;                        // random variation of the pause, so that ranks do not retry all at once
  std::function<void(base::Seconds)> sleep{};  // null: sleeps for real
  // Called before every try, including the first; an error ends the call. Null: always permitted.
  std::function<base::Result<void>()> permit{};
};

// Calls `call`, which runs user code, until it returns without an exception. The error contains `doing` ("upload /tmp/a
// to s3://bucket/a") and the last exception. `hopeless` is called after a failure: if it returns an error, there are no
// more tries.
base::Result<void> with_retries(const RetryPolicy& policy, const std::string& doing, const std::function<void()>& call,
                                const std::function<base::Result<void>()>& hopeless = nullptr);

}  // namespace trireme::storage
