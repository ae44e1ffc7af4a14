#include "worker/busy_threads.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "unit/engine/testing.h"

namespace busy_threads_test {

using namespace trireme;
using engine::testing::eventually;

namespace {

// A thread that stays in one call until the end of the test.
class Placed {
 public:
  explicit Placed(std::function<void(Placed&, std::unique_lock<std::mutex>&)> wait, const char* name = "placed") {
    thread_ = std::jthread([this, wait = std::move(wait), name] {
      ::pthread_setname_np(::pthread_self(), name);
      tid_ = static_cast<int>(::syscall(SYS_gettid));
      std::unique_lock lock(mutex_);
      wait(*this, lock);
    });
    REQUIRE(eventually([&] { return tid_ != 0; }));
  }
  ~Placed() {
    {
      const std::lock_guard lock(mutex_);
      over = true;
    }
    changed.notify_all();
  }
  int tid() const { return tid_; }
  bool busy(const std::set<int>& blocked = {}) const {
    const auto all = worker::busy_threads(blocked);
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& each) { return each.ends_with(fmt::format("({})", tid_.load())); });
  }

  std::condition_variable changed;
  std::atomic<bool> over = false;

 private:
  std::mutex mutex_;
  std::atomic<int> tid_ = 0;
  std::jthread thread_;
};

void wait_for_another(Placed& self, std::unique_lock<std::mutex>& lock) {
  self.changed.wait(lock, [&] { return self.over.load(); });
}
void wait_with_limit(Placed& self, std::unique_lock<std::mutex>& lock) {
  self.changed.wait_for(lock, std::chrono::hours(1), [&] { return self.over.load(); });
}
void compute(Placed& self, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  while (!self.over) {
  }
}

}  // namespace

TEST_CASE("a thread that waits for another one without a timeout cannot make progress by itself") {
  Placed waits(wait_for_another);
  CHECK(eventually([&] { return !waits.busy(); }));
}

TEST_CASE("a thread that wakes up by itself, computes or reads could make progress") {
  Placed sleeps(wait_with_limit);
  Placed computes(compute);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  Placed reads([&](Placed&, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    char byte = 0;
    [[maybe_unused]] const auto count = ::read(ends[0], &byte, 1);
  });
  for (int look = 0; look < 20; ++look) {
    CHECK(sleeps.busy());
    CHECK(computes.busy());
    CHECK(reads.busy());
  }
  ::close(ends[1]);
  // Threads that are known to wait are excluded, and so is the loop of a transport.
  CHECK_FALSE(sleeps.busy({sleeps.tid()}));
  Placed transport(wait_with_limit, "gloo_tcp_loop");
  CHECK_FALSE(transport.busy());
}

TEST_CASE("threads that wake each other are never all blocked") {
  std::mutex mutex;
  std::condition_variable turn;
  int whose = 0;
  std::atomic<bool> over = false;
  std::atomic<int> tids[2] = {0, 0};
  std::vector<std::jthread> players;
  for (int player = 0; player < 2; ++player) {
    players.emplace_back([&, player] {
      tids[player] = static_cast<int>(::syscall(SYS_gettid));
      while (!over) {
        std::unique_lock lock(mutex);
        turn.wait(lock, [&] { return whose == player || over; });
        whose = 1 - player;
        turn.notify_all();
      }
    });
  }
  REQUIRE(eventually([&] { return tids[0] != 0 && tids[1] != 0; }));
  int still = 0;
  for (int look = 0; look < 200; ++look) {
    const auto busy = worker::busy_threads({});
    const auto is_busy = [&](int tid) {
      return std::any_of(busy.begin(), busy.end(),
                         [&](const std::string& each) { return each.ends_with(fmt::format("({})", tid)); });
    };
    still += !is_busy(tids[0]) && !is_busy(tids[1]);
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  turn.notify_all();
  CHECK(still == 0);
}

}  // namespace busy_threads_test
