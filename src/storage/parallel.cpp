#include "storage/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::storage {
namespace {

// The top of a thread: an exception must not leave it.
base::Result<void> guarded(const std::function<base::Result<void>(std::size_t)>& work, std::size_t i) {
  try {
    return work(i);
  } catch (const std::exception& problem) {
    return base::error("{}", problem.what());
  }
}

}  // namespace

base::Result<void> in_parallel(std::size_t count, std::size_t threads,
                               const std::function<base::Result<void>(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::map<std::size_t, base::Error> errors;
  auto loop = [&] {
    while (!failed) {
      const std::size_t i = next++;
      if (i >= count) return;
      auto done = guarded(work, i);
      if (done) continue;
      failed = true;
      std::lock_guard lock(mutex);
      errors.emplace(i, std::move(done).error());
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(count, threads); ++i) others.emplace_back(loop);
    loop();
  }
  if (errors.empty()) return {};
  return errors.begin()->second;
}

}  // namespace trireme::storage
