#include "storage/parallel.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>

namespace parallel_test {

using namespace trireme;
using storage::in_parallel;

TEST_CASE("each call is made exactly once") {
  for (std::size_t threads : {0u, 1u, 3u, 16u}) {
    std::vector<std::atomic<int>> times(100);
    REQUIRE(in_parallel(times.size(), threads, [&](std::size_t i) -> base::Result<void> {
      ++times[i];
      return {};
    }));
    for (const auto& each : times) CHECK(each == 1);
  }
  CHECK(in_parallel(0, 4, [](std::size_t) -> base::Result<void> { return base::error("never called"); }));
}

TEST_CASE("the first error ends it, and an exception counts as an error") {
  for (std::size_t threads : {1u, 4u}) {
    std::atomic<int> calls = 0;
    auto done = in_parallel(1000, threads, [&](std::size_t i) -> base::Result<void> {
      ++calls;
      if (i == 3) throw std::runtime_error("three");
      return {};
    });
    REQUIRE_FALSE(done);
    CHECK(done.error().message() == "three");
    if (threads == 1) CHECK(calls == 4);
  }
}

}  // namespace parallel_test
