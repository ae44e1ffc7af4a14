#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/digest_log.h"
#include "data/order.h"
#include "data/pipeline.h"
#include "data/source.h"
#include "trireme/value.h"

namespace trireme::data {

// A dataset whose fragments are known, and how its rows are to be ordered.
struct Table {
  std::vector<Fragment> fragments;
  std::shared_ptr<Source> source;  // shared by the passes over it
  Layout layout;                   // without fragment_rows, which come from the fragments
};

struct ShardOptions {
  std::string name = "data";  // of the dataset
  int rank = 0;
  int world = 1;
  int max_world = 1;  // an elastic run's most
  bool equal = false;
  int threads = 2;
  std::int64_t memory_budget = std::int64_t{1} << 30;
  std::int64_t decoding_bytes = 0;  // see PipelineOptions
  int read_retries = 0;
  // Where this rank logs what it has taken (see digest_log.h); empty: nowhere.
  std::string digest_folder;
  // Of the gang; for a dataset that is not split (`whole`), `world` is 1.
  int log_rank = 0;
  int log_world = 1;
  bool whole = false;
  int attempt = 0;
};

struct IterOptions {
  std::int64_t batch_size = 256;  // of one rank
  // Of all ranks together, whatever their number, in place of batch_size.
  std::optional<std::int64_t> global_batch_size = {};
  bool drop_last = false;
  bool pad_last = false;
  int prefetch_batches = 1;
  std::int64_t local_shuffle_buffer_size = 0;  // rows; 0: none
  std::optional<std::int64_t> local_shuffle_seed = {};
  // How many batches the caller takes before it gives the first of them to its user: the place is the user's.
  int ahead = 0;
};

// One run through an epoch. Dropping it before its end leaves the epoch: the next one begins a new epoch.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::int64_t epoch() const = 0;
  virtual std::int64_t steps() const = 0;  // from here on
  virtual base::Result<Next> next(std::chrono::duration<double> timeout) = 0;
};

// A rank's part of a dataset, in one epoch after the other. Its place fits any number of ranks. One pass at a time:
// a new one ends the one before. Calls come from one thread; state(), position() and stats() from any.
class Shard {
 public:
  static base::Result<std::shared_ptr<Shard>> make(Table table, ShardOptions options);
  virtual ~Shard() = default;

  // The next epoch, or the rest of the one that load_state() was given.
  virtual base::Result<std::unique_ptr<Pass>> iterate(const IterOptions& options) = 0;
  virtual std::int64_t epoch() const = 0;  // the one that runs, or else the next
  virtual std::int64_t rows() const = 0;   // of the whole dataset
  // The place after the batch that was given out last, equal on all ranks: "epoch", "rows", "size" (of the dataset),
  // what the order of this epoch follows from, with the local shuffle of the pass: "seed", "virtual_shards",
  // "window_rows", "shuffle_fragments", and "dataset_seed", which later epochs begin with.
  virtual Dict state() const = 0;
  // Refuses a place of other data, or of none.
  virtual base::Result<void> load_state(const Dict& state) = 0;
  // What a checkpoint of this moment has: state(), or the next epoch's beginning where this one is over or was left.
  // Cuts the digest log here, so that what a restart repeats can be told from what counts.
  virtual Dict position() = 0;
  // The training function has returned: closes the digest log's books, so that lines that get lost are missed.
  virtual void finish() = 0;
  virtual PipelineStats stats() const = 0;  // of all passes
};

}  // namespace trireme::data
