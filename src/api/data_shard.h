#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "api/dataset_plan.h"
#include "base/result.h"
#include "data/shard.h"
#include "trireme/data.h"
#include "trireme/position.h"

namespace trireme::api {

// The implementation of the handles in data.h.
struct ShardData {
  explicit ShardData(std::shared_ptr<data::Shard> given) : shard(std::move(given)) {}

  std::shared_ptr<data::Shard> shard;  // shared with the passes over it
  std::optional<detail::PositionSource> place;
};

struct BatchStream {
  std::shared_ptr<ShardData> data;  // shared with the shard's handles
  IterBatchesOptions options;
  std::unique_ptr<data::Pass> pass = {};
  std::optional<Batch> batch = {};

  void begin();
  // Waits; throws Interrupted if the training function must return.
  void advance();
};

// The layout options of the plan's shuffle.
data::Ordering ordering_of(const Plan& plan, std::uint64_t standard_seed);

base::Result<std::shared_ptr<data::Shard>> make_shard(const std::shared_ptr<Plan>& plan, const data::Ordering& ordering,
                                                      data::ShardOptions options);
// In this process, without a trainer: the rows in the dataset's own order, or shuffled if it says so.
base::Result<std::shared_ptr<data::Shard>> whole_shard(const std::shared_ptr<Plan>& plan);

inline constexpr std::int64_t kRowsInMemory = 65536;
// All rows, in batches of this size.
base::Result<std::vector<data::Batch>> read_all(const std::shared_ptr<Plan>& plan, std::int64_t batch_rows);
// The same, read lazily.
base::Result<ArrowArrayStream> whole_stream(const std::shared_ptr<Plan>& plan);

}  // namespace trireme::api
