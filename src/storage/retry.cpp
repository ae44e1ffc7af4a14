#include "storage/retry.h"

#include <exception>
#include <optional>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/text.h"

namespace trireme::storage {
namespace {

base::Seconds jittered(base::Seconds pause, double jitter) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return pause * std::uniform_real_distribution<double>(1 - jitter, 1 + jitter)(random);
}

// The boundary to user code: catches all its exceptions.
std::optional<std::string> thrown_by(const std::function<void()>& call) {
  try {
    call();
    return std::nullopt;
  } catch (const std::exception& problem) {
    return problem.what();
  } catch (...) {
    return "an exception that is not a std::exception was thrown";
  }
}

}  // namespace

base::Result<void> with_retries(const RetryPolicy& policy, const std::string& doing, const std::function<void()>& call,
                                const std::function<base::Result<void>()>& hopeless) {
  base::Seconds pause = policy.first_pause;
  for (int attempt = 1;; ++attempt) {
    if (policy.permit) TRIREME_TRY(policy.permit(), "could not {}", doing);
    const auto problem = thrown_by(call);
    if (!problem) return {};
    if (hopeless) TRIREME_TRY(hopeless(), "could not {}", doing);
    if (attempt >= policy.tries)
      return base::error("could not {}, tried {}: {}", doing, base::count_of(attempt, "time"), *problem);
    const auto wait = jittered(pause, policy.jitter);
    base::log_warning("could not {}: {}; try {} of {} in {}", doing, *problem, attempt + 1, policy.tries,
                      base::duration_text(wait.count()));
    if (policy.sleep) {
      policy.sleep(wait);
    } else {
      std::this_thread::sleep_for(wait);
    }
    pause *= 2;
  }
}

}  // namespace trireme::storage
