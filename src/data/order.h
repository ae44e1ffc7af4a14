#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/fields.h"
#include "data/source.h"

// The order of rows in an epoch. It depends only on the dataset, the seed and the epoch, so every rank can compute it
// without messages, and a position is one number for any number of workers.
//
// The fragments, in their own order or shuffled in every epoch, are split into V = `virtual_shards` parts of equal
// size. Row i of the epoch is row i / V of virtual shard i % V: a global batch has equal parts of all virtual shards,
// and a rank that reads a slice of every global batch reads a slice of the files.

namespace trireme::data {

struct Layout {
  std::vector<std::int64_t> fragment_rows;
  std::int64_t virtual_shards = 1;
  bool shuffle_fragments = false;
  // Shuffle windows of this many consecutive rows of a virtual shard; 0: no shuffle.
  std::int64_t window_rows = 0;
  std::uint64_t seed = 0;

  bool operator==(const Layout&) const = default;
};

// Requested properties of the order.
// clang-format off
#define TRIREME_ORDERING(FIELD)                                                                                        \
  FIELD(bool, shuffle_fragments, false, "shuffle the fragments in every epoch")                                        \
  FIELD(bool, shuffle_rows, false, "shuffle the rows inside of windows; also shuffles the fragments")                  \
  FIELD(std::optional<std::int64_t>, window_rows, {}, "for shuffle_rows; None: as many rows as fit into kWindowBytes") \
  FIELD(std::optional<std::int64_t>, virtual_shards, {}, "None: chosen by the dataset")                                \
  FIELD(std::uint64_t, seed, 0, "of the shuffle")                                                                      \
  /* Small datasets are split too then, so that workers do not repeat each other's work. */                            \
  FIELD(bool, costly_rows, false, "computing rows costs more than reading them (functions, images)")                   \
  FIELD(std::int64_t, made_together, 1, "for costly rows: the number of rows that are always computed together")       \
  FIELD(std::optional<std::int64_t>, memory_budget, {}, "the user's memory limit of a worker in bytes; None: not set")
// clang-format on
TRIREME_STRUCT(Ordering, TRIREME_ORDERING)

inline constexpr std::int64_t kWindowBytes = std::int64_t{256} << 20;

// The layout of a dataset. Unset options follow from the dataset and constants, never from the machine or the number of
// workers: the order must be the same everywhere. A position in an epoch keeps the layout.
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
  // A virtual shard's rows from `row` on, in reading order, before they are shuffled in windows.
  std::vector<FragmentSlice> pieces(std::int64_t shard, std::int64_t row) const;
  // The permutation of a shard's window: its row i is read as row permutation[i]. Windows have window_rows() rows; the
  // last one has the rest.
  std::vector<std::uint32_t> permutation(std::int64_t shard, std::int64_t window) const;

 private:
  std::int64_t begin_of(std::int64_t shard) const;

  std::int64_t rows_ = 0;
  std::int64_t virtual_shards_ = 1;
  std::int64_t window_rows_ = 0;
  std::uint64_t seed_ = 0;  // of this epoch
  std::vector<std::size_t> fragments_;
  std::vector<std::int64_t> begins_;  // of the fragments in this order, plus the end of the last
};

}  // namespace trireme::data

namespace trireme::base {
TRIREME_STRUCT_FIELDS(data::Ordering, TRIREME_ORDERING)
}  // namespace trireme::base
