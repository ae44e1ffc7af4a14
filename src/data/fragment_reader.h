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

// Rows of a virtual shard, in the order in which they are read.
struct Stretch {
  std::shared_ptr<const Chunk> chunk;
  std::int64_t chunk_row = 0;  // the first that counts
  std::int64_t begin = 0;      // of the virtual shard
  std::int64_t count = 0;
  std::int64_t sample = 0;  // the number of its first row in the dataset

  std::int64_t end() const { return begin + count; }
  // What its rows take.
  std::int64_t bytes() const { return chunk->bytes() * count / chunk->rows(); }
};

// What all readers of a dataset share.
struct Reading {
  std::vector<Fragment> fragments;
  std::vector<std::int64_t> samples;  // the number of each fragment's first row in the dataset
  std::shared_ptr<Source> source;     // shared with the other passes over the dataset
  CommonSchema schema;
};

// Reads a piece of a fragment, chunk by chunk. One thread at a time.
class FragmentReader {
 public:
  // begin: of the virtual shard, the piece's first row.
  FragmentReader(Reading& reading, const FragmentSlice& piece, std::int64_t begin)
      : reading_(reading), piece_(piece), begin_(begin) {}

  struct Failure {
    base::Error error;
    bool may_pass = false;  // the next call goes on where this one failed
  };
  // Nothing at the end, or where it failed.
  std::optional<Stretch> next(std::optional<Failure>& failure);
  // Of the virtual shard, the row that comes next, and whether there is one.
  std::int64_t row() const { return begin_; }
  bool over() const { return piece_.count == 0; }

 private:
  bool open(std::optional<Failure>& failure);
  void check_end(std::optional<Failure>& failure);
  const Fragment& fragment() const { return reading_.fragments[piece_.fragment]; }

  Reading& reading_;
  FragmentSlice piece_;  // what is left of it
  std::int64_t begin_;   // of the virtual shard, the next row
  std::unique_ptr<Stream> stream_;
  std::int64_t stream_row_ = 0;  // of the fragment, the next that the stream gives
};

}  // namespace trireme::data
