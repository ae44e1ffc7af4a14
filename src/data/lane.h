#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "data/fragment_reader.h"
#include "data/order.h"
#include "data/window.h"

namespace trireme::data {

// A virtual shard on its way into memory. Several of its pieces may be read at the same time; their rows come into the
// window in order.
class Lane {
 public:
  // A piece that is being read.
  struct Task {
    FragmentReader reader;  // of the thread that has set `busy`
    bool busy = false;
    int retries = 0;
    bool over = false;
    std::int64_t row;  // that is read next
    std::deque<Stretch> read;
  };

  // From a row of the shard on.
  Lane(Reading& reading, const Order& order, std::int64_t shard, std::int64_t row);

  // These rows will be asked for.
  void want(Span rows);
  // Wanted, and not read.
  std::int64_t missing_rows() const;
  // Pieces that are being read.
  std::int64_t open_pieces() const;
  // A piece with wanted rows that nobody reads. Begins a new one where fewer than `most` are open.
  Task* next_task(std::size_t most);
  // Rows that were read in a task; what follows in order goes into the window.
  void take(Task& task, Stretch stretch);
  void settle();

  Window& window() { return window_; }
  const Window& window() const { return window_; }

 private:
  Reading& reading_;
  Window window_;
  std::int64_t wanted_to_ = 0;               // as it is read
  std::deque<FragmentSlice> pieces_;         // that nobody has begun
  std::int64_t begin_;                       // of the first of those
  std::deque<std::unique_ptr<Task>> tasks_;  // in order
};

}  // namespace trireme::data
