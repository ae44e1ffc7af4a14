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

// Rows of a virtual shard that are in memory, with their order. Immutable: batches are assembled from it while more
// rows are read.
class View {
 public:
  // The stretches, and the positions of the shard's rows from `begin` on among the rows read from `begin` on; without a
  // permutation they are in reading order.
  struct Rows {
    std::vector<Stretch> stretches;
    std::int64_t begin = 0;
    std::vector<std::uint32_t> permutation;

    std::size_t stretch_of(std::int64_t read_row) const;
  };

  View(std::vector<std::shared_ptr<const Rows>> windows, Span rows) : windows_(std::move(windows)), rows_(rows) {}

  Span rows() const { return rows_; }
  // Adds the chunks that it needs, and the rows.
  void append_runs(std::vector<std::shared_ptr<const Chunk>>& chunks, std::vector<Run>& runs) const;

  template <typename F>
  void each_sample(F&& visit) const {
    each_place([&](const Rows& rows, std::size_t stretch, std::int64_t read_row, std::int64_t count) {
      const Stretch& found = rows.stretches[stretch];
      for (std::int64_t i = 0; i < count; ++i) visit(found.sample + read_row - found.begin + i);
    });
  }

 private:
  // Calls visit(window, stretch, read row, count) for consecutive rows.
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

// The part of a virtual shard that is in memory.
class Window {
 public:
  // Starts with the window that has the row.
  Window(const Order& order, std::int64_t shard, std::int64_t row);

  // The rows that must be read before these rows can be delivered: the same rows, or complete windows if shuffled.
  Span needs(Span rows) const;
  std::int64_t read_to() const { return read_to_; }
  bool has(Span rows) const { return needs(rows).end <= read_to_; }
  void append(Stretch stretch);
  // For rows that are in memory.
  View view(Span rows);
  // Rows before this one are no longer needed. Returns the number of freed bytes.
  std::int64_t release_before(std::int64_t row);

 private:
  std::shared_ptr<const View::Rows> part(Span read) const;

  const Order* order_;
  std::int64_t shard_;
  std::int64_t rows_;   // of the shard
  std::int64_t width_;  // of a window; 0: rows keep their order
  std::int64_t read_to_;
  std::deque<Stretch> stretches_;
  std::deque<std::pair<std::int64_t, std::shared_ptr<const View::Rows>>> shuffled_;  // windows in use, by number
};

}  // namespace trireme::data
