#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "data/batch.h"
#include "data/shard.h"
#include "plan/plan.h"
#include "plan/record.h"

// Reading all rows of a plan, in order or shuffled.

namespace trireme::plan {

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
base::Result<OwnedStream> whole_stream(const std::shared_ptr<Plan>& plan);
// The rows in the dataset's own order, without any shuffle. They are not counted before.
base::Result<OwnedStream> ordered_stream(std::shared_ptr<Plan> plan);
// The rows of a stream.
std::unique_ptr<Input> stream_input(OwnedStream stream, std::shared_ptr<const data::Schema> schema);

}  // namespace trireme::plan
