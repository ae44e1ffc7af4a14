#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace trireme::storage {

// How often and how patiently a call to a storage elsewhere is made again: with these numbers five times in about 15 s.
struct RetryPolicy {
  int tries = 5;
  base::Seconds first_pause{1.0};  // the next ones are twice as long each
  double jitter = 0.25;            // by up to this share longer or shorter, so that ranks do not come back all at once
  std::function<void(base::Seconds)> sleep{};  // null: really
  // Asked before every try, the first one too; an error ends the call. Null: everything is permitted.
  std::function<base::Result<void>()> permit{};
};

// Calls `call`, a call into the user's code, until it returns without an exception. The error says `doing`
// ("upload /tmp/a to s3://bucket/a") and what was thrown last. `hopeless` is asked after a failure: an error it returns
// ends the tries.
base::Result<void> with_retries(const RetryPolicy& policy, const std::string& doing, const std::function<void()>& call,
                                const std::function<base::Result<void>()>& hopeless = nullptr);

}  // namespace trireme::storage
