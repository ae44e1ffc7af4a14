#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "data/batch.h"
#include "data/order.h"
#include "data/source.h"
#include "data/steps.h"

namespace trireme::data {

struct PipelineOptions {
  Layout layout;
  std::int64_t epoch = 0;
  std::int64_t begin = 0;  // the epoch's row to begin with
  int rank = 0;
  Cutting cutting;
  int prefetch_batches = 1;
  int threads = 2;
  // What decoders, chunks and finished batches may take. A rank that could not go on otherwise takes more, one chunk at
  // a time.
  std::int64_t memory_budget = std::int64_t{1} << 30;
  // What a fragment takes while it is read, beside its rows; 0: nobody knows.
  std::int64_t decoding_bytes = 0;
  // How often a fragment is opened again after an EIO, with pauses from retry_pause on that grow fourfold.
  int read_retries = 0;
  std::chrono::duration<double> retry_pause{0.1};
  bool digest = false;  // whether Next::digest is wanted
};

struct PipelineStats {
  std::int64_t rows = 0;  // given out
  std::int64_t bytes = 0;
  std::int64_t batches = 0;
  double wait_s = 0;            // that next() was waited for
  std::int64_t held_bytes = 0;  // now
  std::int64_t peak_bytes = 0;
  std::int64_t retries = 0;
};

// What next() gives: a batch, the end, or that none was ready in time.
struct Next {
  enum class State { kBatch, kEnd, kTimeout };
  State state = State::kEnd;
  std::optional<Batch> batch;
  Span span;                  // of the epoch, the whole global batch
  std::int64_t rows = 0;      // this rank's
  std::int64_t own_rows = 0;  // those that are not there again to pad the batch
  std::uint64_t digest = 0;   // the sum of row_digest() over own rows, as they were read
};

// That a row of a dataset (`sample`: the number of its fragment's first row, plus its own) was given out at a place of
// the epoch (`slot`: the first row of the global batch, plus the row's number in the batch sorted by virtual shard).
// Sums of these differ where a row is missing, is there twice, or has changed places with another one.
std::uint64_t row_digest(std::int64_t slot, std::int64_t sample);

// One rank's batches of one epoch, read, shuffled and put together by threads of its own. One thread calls.
class Pipeline {
 public:
  static base::Result<std::unique_ptr<Pipeline>> start(std::vector<Fragment> fragments, std::shared_ptr<Source> source,
                                                       const PipelineOptions& options);
  // Ends the threads; what they are reading is finished first.
  virtual ~Pipeline() = default;

  virtual std::int64_t steps() const = 0;  // those that were left to do at the start
  // After an error it gives the same error again.
  virtual base::Result<Next> next(std::chrono::duration<double> timeout) = 0;
  virtual PipelineStats stats() const = 0;
};

}  // namespace trireme::data
