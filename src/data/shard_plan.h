#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/result.h"
#include "data/shard.h"
#include "trireme/config.h"

// How the datasets of a trainer are divided among its workers, in both languages: names, seeds, parts and budgets.

namespace trireme::data {

// What the driver decides about a dataset. Equal on all workers.
// clang-format off
#define TRIREME_SHARD_PLAN(FIELD)                                                                                      \
  FIELD(std::string, name, {}, "name of the dataset")                                                                  \
  FIELD(std::int64_t, rows, 0, "rows of the complete dataset")                                                         \
  FIELD(bool, split, true, "every worker reads a part; otherwise every worker reads all rows")                         \
  FIELD(int, max_workers, 1, "the most workers that an elastic run may have")                                          \
  FIELD(std::int64_t, seed, 0, "of the order, for datasets without their own seed")

// A worker, as it sees itself.
#define TRIREME_SHARD_WORKER(FIELD)                                                                                    \
  FIELD(int, rank, 0, "in the gang")                                                                                   \
  FIELD(int, world, 1, "size of the gang")                                                                             \
  FIELD(int, workers_here, 1, "workers that share this machine")                                                       \
  FIELD(int, attempt, 0, "number of the attempt, from 0")                                                              \
  FIELD(std::string, run_folder, {}, "empty: there is none")
// clang-format on
TRIREME_STRUCT(ShardPlan, TRIREME_SHARD_PLAN)
TRIREME_STRUCT(ShardWorker, TRIREME_SHARD_WORKER)

// Names of datasets become file names; those in datasets_to_split must exist.
base::Result<void> check_datasets(const std::vector<std::string>& names, const DataConfig& config);

// Rejects a dataset that is empty or too small for the workers. `own_seed`: of the dataset's shuffle. Draws a seed if
// there is none.
base::Result<ShardPlan> plan_shard(const std::string& name, std::int64_t rows, const DataConfig& config,
                                   int max_workers, std::optional<std::int64_t> own_seed);

// A worker's part of the dataset.
base::Result<ShardOptions> shard_options(const ShardPlan& plan, const DataConfig& config, const ShardWorker& worker);

// Nothing: chosen by the dataset's size. A worker that reads all rows does so in the dataset's own order.
std::optional<std::int64_t> virtual_shards(const ShardPlan& plan, const DataConfig& config);

// Where the workers log the rows that they have read; empty: they do not.
std::string digest_folder(const DataConfig& config, const std::string& run_folder);

// Seeds have 63 bits, so that both languages can store them.
std::uint64_t seed_of(std::int64_t number);

}  // namespace trireme::data

namespace trireme::base {
TRIREME_STRUCT_FIELDS(data::ShardPlan, TRIREME_SHARD_PLAN)
TRIREME_STRUCT_FIELDS(data::ShardWorker, TRIREME_SHARD_WORKER)
}  // namespace trireme::base
