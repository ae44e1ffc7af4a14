#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "data/chunk.h"
#include "data/order.h"
#include "data/source.h"
#include "data/stream.h"

namespace trireme::data {

// Rows of a virtual shard, in reading order.
struct Stretch {
  std::shared_ptr<const Chunk> chunk;
  std::int64_t chunk_row = 0;  // the first row of the chunk that counts
  std::int64_t begin = 0;      // position in the virtual shard
  std::int64_t count = 0;
  std::int64_t sample = 0;  // index of its first row in the dataset

  std::int64_t end() const { return begin + count; }
  // Memory of its rows.
  std::int64_t bytes() const { return chunk->bytes() * count / chunk->rows(); }
};

// Shared by all readers of a dataset.
struct Reading {
  std::vector<Fragment> fragments;
  std::vector<std::int64_t> samples;  // index of each fragment's first row in the dataset
  std::shared_ptr<Source> source;     // shared with the other passes over the dataset
  CommonSchema schema;
};

// Reads a piece of a fragment, chunk by chunk. One thread at a time.
class FragmentReader {
 public:
  // begin: position of the piece's first row in the virtual shard.
  FragmentReader(Reading& reading, const FragmentSlice& piece, std::int64_t begin)
      : reading_(reading), piece_(piece), begin_(begin) {}

  struct Failure {
    base::Error error;
    bool may_pass = false;  // the next call continues where this one failed
  };
  // Nothing at the end or after a failure.
  std::optional<Stretch> next(std::optional<Failure>& failure);
  // The next row of the virtual shard, and whether there is one.
  std::int64_t row() const { return begin_; }
  bool over() const { return piece_.count == 0; }

 private:
  bool open(std::optional<Failure>& failure);
  void check_end(std::optional<Failure>& failure);
  const Fragment& fragment() const { return reading_.fragments[piece_.fragment]; }

  Reading& reading_;
  FragmentSlice piece_;  // the rest of the piece
  std::int64_t begin_;   // the next row, in the virtual shard
  std::unique_ptr<Stream> stream_;
  std::int64_t stream_row_ = 0;  // the next row of the stream, in the fragment
};

}  // namespace trireme::data
