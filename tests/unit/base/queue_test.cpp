#include "base/queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace queue_test {

using trireme::base::BoundedQueue;

TEST_CASE("first in, first out") {
  BoundedQueue<int> queue(3);
  CHECK(queue.push(1));
  CHECK(queue.push(2));
  CHECK(queue.pop() == 1);
  CHECK(queue.pop() == 2);
}

TEST_CASE("after close() producers are refused and consumers drain the rest") {
  BoundedQueue<int> queue(2);
  CHECK(queue.push(1));
  queue.close();
  CHECK_FALSE(queue.push(2));
  CHECK(queue.pop() == 1);
  CHECK_FALSE(queue.pop());
}

TEST_CASE("move-only items can be queued") {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  CHECK(queue.push(std::make_unique<int>(5)));
  CHECK(**queue.pop() == 5);
}

TEST_CASE("a producer waits for room, a consumer for items") {
  BoundedQueue<int> queue(1);
  std::jthread producer([&] {
    for (int i = 0; i < 1000; ++i) queue.push(i);
    queue.close();
  });
  int expected = 0;
  while (auto item = queue.pop()) CHECK_EQ(*item, expected++);
  CHECK(expected == 1000);
}

TEST_CASE("many producers and consumers lose no items") {
  constexpr int kThreads = 4;
  constexpr int kItems = 5000;
  BoundedQueue<int> queue(16);
  std::atomic<long> sum{0};
  std::atomic<int> count{0};
  {
    std::vector<std::jthread> consumers;
    for (int t = 0; t < kThreads; ++t) {
      consumers.emplace_back([&] {
        while (auto item = queue.pop()) {
          sum += *item;
          ++count;
        }
      });
    }
    std::vector<std::jthread> producers;
    for (int t = 0; t < kThreads; ++t) {
      producers.emplace_back([&] {
        for (int i = 1; i <= kItems; ++i) queue.push(i);
      });
    }
    producers.clear();  // joins
    queue.close();
  }
  CHECK(count == kThreads * kItems);
  CHECK(sum == kThreads * (static_cast<long>(kItems) * (kItems + 1) / 2));
}

TEST_CASE("close() wakes all waiting threads") {
  BoundedQueue<int> full(1), empty(1);
  REQUIRE(full.push(1));
  std::atomic<bool> pushed{true};
  std::atomic<bool> popped{true};
  {
    std::jthread producer([&] { pushed = full.push(2); });
    std::jthread consumer([&] { popped = empty.pop().has_value(); });
    full.close();
    empty.close();
  }
  CHECK_FALSE(pushed);
  CHECK_FALSE(popped);
}

}  // namespace queue_test
