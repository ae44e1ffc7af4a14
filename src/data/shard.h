#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/result.h"
#include "data/digest_log.h"
#include "data/order.h"
#include "data/pipeline.h"
#include "data/source.h"
#include "trireme/iter_batches_options.h"
#include "trireme/value.h"

namespace trireme::data {

// A dataset whose fragments are known, and the order of its rows.
struct Table {
  std::vector<Fragment> fragments;
  std::shared_ptr<Source> source;  // shared by the passes over it
  Layout layout;                   // without fragment_rows, which come from the fragments
};

// Which part of a dataset, and how it is read. Every rank of a gang has the same options except for its ranks.
// clang-format off
#define TRIREME_SHARD_OPTIONS(FIELD)                                                                                   \
  FIELD(std::string, name, "data", "name of the dataset")                                                              \
  FIELD(int, rank, 0, "which part; 0 for a dataset that is not split")                                                 \
  FIELD(int, world, 1, "number of parts; 1 for a dataset that is not split")                                           \
  FIELD(int, max_world, 1, "the most parts that an elastic run may have")                                              \
  FIELD(bool, equal, false, "give every part the same number of rows")                                                 \
  FIELD(int, workers_here, 1, "workers that share this machine, for the defaults below")                               \
  FIELD(std::optional<std::int64_t>, threads, {}, "default: 2, or 1 if each worker has fewer than 2 CPUs")             \
  FIELD(int, function_processes, 0, "processes that call user functions: as many fragments are read at the same time") \
  FIELD(std::optional<std::int64_t>, memory_budget, {},                                                                \
        "bytes; default: a quarter of the machine's memory divided by its workers, at most 2 GB")                      \
  FIELD(std::int64_t, decoding_bytes, 0, "memory of a fragment while it is read, in addition to its rows; 0: unknown") \
  FIELD(bool, remote, false, "retry failed reads: the files are in a remote store")                                    \
  FIELD(std::string, digest_folder, {}, "where this rank logs the rows that it has taken (digest_log.h); empty: disabled") \
  FIELD(int, log_rank, 0, "rank in the gang, also for a dataset that is not split")                                    \
  FIELD(int, log_world, 1, "size of the gang, also for a dataset that is not split")                                   \
  FIELD(bool, whole, false, "the dataset is not split: every rank takes all rows")                                     \
  FIELD(int, attempt, 0, "number of the attempt, from 0")
// clang-format on
TRIREME_STRUCT(ShardOptions, TRIREME_SHARD_OPTIONS)

// One pass over an epoch. Destroying it before its end abandons the epoch: the next pass begins the next epoch.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::int64_t epoch() const = 0;
  virtual std::int64_t steps() const = 0;  // that were left when it began
  virtual base::Result<Next> next(std::chrono::duration<double> timeout) = 0;
  // After next() has failed: reads again from the first row that it has not returned. The source may have another
  // schema now. The position and the log of the shard do not change.
  virtual base::Result<void> reopen() = 0;
};

// A rank's part of a dataset, one epoch after the other. Its position is valid for any number of ranks. There is one
// pass at a time: a new one ends the previous one. One thread calls; state(), position() and stats() may be called from
// any thread.
class Shard {
 public:
  static base::Result<std::shared_ptr<Shard>> make(Table table, ShardOptions options);
  virtual ~Shard() = default;

  // The next epoch, or the rest of the one that load_state() was given. `ahead`: how many batches the caller takes
  // before it gives the first of them to its user, whose position is the one that counts; -1: it calls used().
  virtual base::Result<std::unique_ptr<Pass>> iterate(const IterBatchesOptions& options, int ahead = 0) = 0;
  // The user has used this many more batches of the pass. Any thread.
  virtual void used(std::int64_t batches) = 0;
  virtual std::int64_t epoch() const = 0;  // the current one, or else the next
  virtual std::int64_t rows() const = 0;   // of the whole dataset
  // The position after the last batch that was given out, equal on all ranks: "epoch", "rows", "size" (of the dataset);
  // what the order of this epoch follows from, with the local shuffle of the pass: "seed", "virtual_shards",
  // "window_rows", "shuffle_fragments"; and "dataset_seed", which later epochs begin with.
  virtual Dict state() const = 0;
  // Refuses an invalid position, and one in other data.
  virtual base::Result<void> load_state(const Dict& state) = 0;
  // What a checkpoint stores now: state(), or the beginning of the next epoch if this one is over or abandoned.
  // Ends a section of the digest log, so that rows that a restart repeats can be told from those that count.
  virtual Dict position() = 0;
  // The training function has returned: completes the digest log, so that missing lines are detected.
  virtual void finish() = 0;
  virtual PipelineStats stats() const = 0;  // of all passes
  // Rows in the digest log, up to the last position(): evidence of lines that are missing later. Nothing without a log.
  virtual std::optional<std::int64_t> logged_rows() const = 0;
};

}  // namespace trireme::data

namespace trireme::base {
TRIREME_STRUCT_FIELDS(data::ShardOptions, TRIREME_SHARD_OPTIONS)
}  // namespace trireme::base
