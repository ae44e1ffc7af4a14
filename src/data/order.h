#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/source.h"

// In which order an epoch has its rows: a function of dataset, seed and epoch alone, so that every rank knows it
// without a message and a place in it is one number, for any number of workers.
//
// The fragments, in their order or a new one every epoch, are cut into `virtual_shards` parts of equal size. Row i of
// the epoch is row i / V of virtual shard i % V: a global batch has equal parts of all of them, and whoever takes a
// piece of every global batch reads a piece of the files.

namespace trireme::data {

struct Layout {
  std::vector<std::int64_t> fragment_rows;
  std::int64_t virtual_shards = 1;
  bool shuffle_fragments = false;
  // Rows are shuffled among this many that follow one another in a virtual shard; 0: not at all.
  std::int64_t window_rows = 0;
  std::uint64_t seed = 0;

  bool operator==(const Layout&) const = default;
};

// What is asked of the order.
struct Ordering {
  bool shuffle_fragments = false;
  bool shuffle_rows = false;  // and the fragments
  // For shuffle_rows; as many rows as take kWindowBytes when not given.
  std::optional<std::int64_t> window_rows = {};
  std::optional<std::int64_t> virtual_shards = {};
  std::uint64_t seed = 0;
  // Rows cost more than reading them (functions, images): then also few fragments are cut, so that no worker does the
  // work of others.
  bool costly_rows = false;
  // For costly rows: so many are made together, whoever needs one of them.
  std::int64_t made_together = 1;
  // What the user allows a worker, where he does.
  std::optional<std::int64_t> memory_budget = {};
};

inline constexpr std::int64_t kWindowBytes = std::int64_t{256} << 20;

// How a dataset is laid out. What nobody has asked for follows from the dataset and from constants, never from the
// machine or the number of workers: the order must be the same everywhere. A place in an epoch keeps the layout.
Layout lay_out(std::span<const Fragment> fragments, const Ordering& ordering);

// A part of a fragment.
struct FragmentSlice {
  std::size_t fragment = 0;
  std::int64_t row = 0;
  std::int64_t count = 0;

  bool operator==(const FragmentSlice&) const = default;
};

class Order {
 public:
  Order(const Layout& layout, std::int64_t epoch);

  std::int64_t rows() const { return rows_; }
  std::int64_t virtual_shards() const { return virtual_shards_; }
  std::int64_t window_rows() const { return window_rows_; }
  std::int64_t rows_of(std::int64_t shard) const;
  // A virtual shard's rows from `row` on, as they are read, before they are shuffled in windows.
  std::vector<FragmentSlice> pieces(std::int64_t shard, std::int64_t row) const;
  // Where the rows of a shard's window are taken from: its row i is read as row permutation[i]. Windows have
  // window_rows() rows, the last one what is left.
  std::vector<std::uint32_t> permutation(std::int64_t shard, std::int64_t window) const;

 private:
  std::int64_t begin_of(std::int64_t shard) const;

  std::int64_t rows_ = 0;
  std::int64_t virtual_shards_ = 1;
  std::int64_t window_rows_ = 0;
  std::uint64_t seed_ = 0;  // of this epoch
  std::vector<std::size_t> fragments_;
  std::vector<std::int64_t> begins_;  // of the fragments in this order, and the end of the last
};

}  // namespace trireme::data
