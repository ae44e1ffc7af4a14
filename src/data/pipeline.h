#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fields.h"
#include "base/result.h"
#include "data/batch.h"
#include "data/order.h"
#include "data/source.h"
#include "data/steps.h"

namespace trireme::data {

// How often both languages repeat a failed read of a remote store.
inline constexpr int kReadRetries = 4;

struct PipelineOptions {
  Layout layout;
  std::int64_t epoch = 0;
  std::int64_t begin = 0;  // first row in the epoch
  int rank = 0;
  Cutting cutting;
  int prefetch_batches = 1;
  int threads = 2;
  // Fragments to read at the same time, if more than `threads`: reads that only wait for function processes.
  int reads = 0;
  // Memory limit for decoders, chunks and finished batches. A rank that cannot continue otherwise exceeds it, one chunk
  // at a time.
  std::int64_t memory_budget = std::int64_t{1} << 30;
  // Memory of a fragment while it is read, in addition to its rows; 0: unknown.
  std::int64_t decoding_bytes = 0;
  // How often a fragment is reopened after an EIO. The pause starts at retry_pause and grows fourfold.
  int read_retries = 0;
  std::chrono::duration<double> retry_pause{0.1};
  bool digest = false;  // whether to compute Next::digest
};

// clang-format off
#define TRIREME_PIPELINE_STATS(FIELD)                                          \
  FIELD(std::int64_t, rows, 0, "delivered")                                    \
  FIELD(std::int64_t, bytes, 0, "delivered")                                   \
  FIELD(std::int64_t, batches, 0, "delivered")                                 \
  FIELD(double, wait_s, 0, "total time spent waiting in next()")               \
  FIELD(std::int64_t, held_bytes, 0, "memory of the data that is loaded now")  \
  FIELD(std::int64_t, peak_bytes, 0, "the largest value of held_bytes")        \
  FIELD(std::int64_t, retries, 0, "repeated reads")
// clang-format on
TRIREME_STRUCT(PipelineStats, TRIREME_PIPELINE_STATS)

// The result of next(): a batch, the end, or a timeout.
struct Next {
  enum class State { kBatch, kEnd, kTimeout };
  State state = State::kEnd;
  std::optional<Batch> batch;
  Span span;                  // of the complete global batch, in the epoch
  std::int64_t rows = 0;      // this rank's
  std::int64_t own_rows = 0;  // without rows that pad the batch
  std::uint64_t digest = 0;   // the sum of row_digest() over own rows, in reading order
};

// Digest of one delivered row. `sample`: the row's index in the dataset. `slot`: its position in the epoch, which is
// the first row of the global batch plus the row's index in the batch sorted by virtual shard. The sums of two passes
// differ if a row is missing, repeated, or swapped with another one.
std::uint64_t row_digest(std::int64_t slot, std::int64_t sample);

// One rank's batches of one epoch, read, shuffled and assembled by its own threads. Called by one thread.
class Pipeline {
 public:
  static base::Result<std::unique_ptr<Pipeline>> start(std::vector<Fragment> fragments, std::shared_ptr<Source> source,
                                                       const PipelineOptions& options);
  // Stops the threads after they finish their current reads.
  virtual ~Pipeline() = default;

  virtual std::int64_t steps() const = 0;  // that were left at the start
  // After an error every call returns the same error.
  virtual base::Result<Next> next(std::chrono::duration<double> timeout) = 0;
  virtual PipelineStats stats() const = 0;
};

}  // namespace trireme::data

namespace trireme::base {
TRIREME_STRUCT_FIELDS(data::PipelineStats, TRIREME_PIPELINE_STATS)
}  // namespace trireme::base
