#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "data/fragment_reader.h"
#include "data/order.h"
#include "data/window.h"

namespace trireme::data {

// A virtual shard that is being read. Several of its pieces may be read concurrently; their rows enter the window in
// order.
class Lane {
 public:
  // A piece that is being read.
  struct Task {
    FragmentReader reader;  // owned by the thread that set `busy`
    bool busy = false;
    int retries = 0;
    bool over = false;
    std::int64_t row;  // the next row to read
    std::deque<Stretch> read;
  };

  // Starts at a row of the shard.
  Lane(Reading& reading, const Order& order, std::int64_t shard, std::int64_t row);

  // Marks rows that will be requested.
  void want(Span rows);
  // Rows that are wanted but not read.
  std::int64_t missing_rows() const;
  // Number of pieces that are being read.
  std::int64_t open_pieces() const;
  // A piece with wanted rows that no thread reads. Opens a new one if fewer than `most` are open.
  Task* next_task(std::size_t most);
  // Adds rows that a task has read. Rows that are next in order move into the window.
  void take(Task& task, Stretch stretch);
  void settle();

  Window& window() { return window_; }
  const Window& window() const { return window_; }

 private:
  Reading& reading_;
  Window window_;
  std::int64_t wanted_to_ = 0;               // in reading order
  std::deque<FragmentSlice> pieces_;         // not started
  std::int64_t begin_;                       // start of the first of those
  std::deque<std::unique_ptr<Task>> tasks_;  // in order
};

}  // namespace trireme::data
