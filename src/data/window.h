#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "data/fragment_reader.h"
#include "data/order.h"
#include "data/steps.h"

namespace trireme::data {

// Rows of a virtual shard that are here, with the order in which they come. Never written again: batches are put
// together from it while more is read.
class View {
 public:
  // What it looks at: the stretches, and where the shard's rows from `begin` on are among what was read from `begin`
  // on; no permutation: in their places.
  struct Rows {
    std::vector<Stretch> stretches;
    std::int64_t begin = 0;
    std::vector<std::uint32_t> permutation;

    std::size_t stretch_of(std::int64_t read_row) const;
  };

  View(std::vector<std::shared_ptr<const Rows>> windows, Span rows) : windows_(std::move(windows)), rows_(rows) {}

  Span rows() const { return rows_; }
  // Adds the chunks it needs, and the rows.
  void append_runs(std::vector<std::shared_ptr<const Chunk>>& chunks, std::vector<Run>& runs) const;

  template <typename F>
  void each_sample(F&& visit) const {
    each_place([&](const Rows& rows, std::size_t stretch, std::int64_t read_row, std::int64_t count) {
      const Stretch& found = rows.stretches[stretch];
      for (std::int64_t i = 0; i < count; ++i) visit(found.sample + read_row - found.begin + i);
    });
  }

 private:
  // Calls visit(window, stretch, read row, count) for rows that follow one another.
  template <typename F>
  void each_place(F&& visit) const {
    for (std::size_t i = 0; i < windows_.size(); ++i) {
      const Rows& rows = *windows_[i];
      const std::int64_t end = i + 1 < windows_.size() ? std::min(windows_[i + 1]->begin, rows_.end) : rows_.end;
      for (std::int64_t row = std::max(rows.begin, rows_.begin); row < end;) {
        std::int64_t read_row = row;
        std::int64_t count = 1;
        if (!rows.permutation.empty())
          read_row = rows.begin + rows.permutation[static_cast<std::size_t>(row - rows.begin)];
        const std::size_t stretch = rows.stretch_of(read_row);
        if (rows.permutation.empty()) count = std::min(end, rows.stretches[stretch].end()) - row;
        visit(rows, stretch, read_row, count);
        row += count;
      }
    }
  }

  std::vector<std::shared_ptr<const Rows>> windows_;  // shared with the other views of the same window
  Span rows_;
};

// What of a virtual shard is in memory.
class Window {
 public:
  // From the window that has the row on.
  Window(const Order& order, std::int64_t shard, std::int64_t row);

  // What must be read before these rows can be given: the same, or whole windows of shuffled rows.
  Span needs(Span rows) const;
  std::int64_t read_to() const { return read_to_; }
  bool has(Span rows) const { return needs(rows).end <= read_to_; }
  void append(Stretch stretch);
  // Of rows that are here.
  View view(Span rows);
  // Nobody will ask for rows before this one again. Returns the bytes that were given up.
  std::int64_t release_before(std::int64_t row);

 private:
  std::shared_ptr<const View::Rows> part(Span read) const;

  const Order* order_;
  std::int64_t shard_;
  std::int64_t rows_;   // of the shard
  std::int64_t width_;  // of a window; 0: rows stay in their places
  std::int64_t read_to_;
  std::deque<Stretch> stretches_;
  std::deque<std::pair<std::int64_t, std::shared_ptr<const View::Rows>>> shuffled_;  // windows in use, by number
};

}  // namespace trireme::data
