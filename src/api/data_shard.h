#pragma once

#include <memory>
#include <optional>

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

}  // namespace trireme::api
