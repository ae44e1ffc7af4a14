#include "api/data_shard.h"

#include <chrono>

#include "api/train_session.h"
#include "plan/read.h"
#include "plan/rows.h"

namespace trireme {
namespace api {
namespace {

// How often a function that waits for data checks for an interrupt.
constexpr std::chrono::duration<double> kLook{0.1};

}  // namespace

void BatchStream::begin() {
  batch.reset();
  if (data->shard->rows() == 0) return;  // allowed for inspection; trainers reject empty datasets
  pass = value_or_throw(data->shard->iterate(options));
  advance();
}

void BatchStream::advance() {
  batch.reset();
  while (true) {
    auto next = value_or_throw(pass->next(kLook));
    if (next.state == data::Next::State::kEnd) {
      pass.reset();
      return;
    }
    if (next.state == data::Next::State::kBatch) {
      batch = plan::public_batch(*std::move(next.batch));
      return;
    }
    if (current_if_any()) check_interrupted();
  }
}

}  // namespace api

using api::value_or_throw;

Batches::Iterator Batches::begin() {
  stream_->begin();
  return Iterator(stream_);
}

Batch& Batches::Iterator::operator*() const { return *stream_->batch; }

Batches::Iterator& Batches::Iterator::operator++() {
  stream_->advance();
  return *this;
}

bool Batches::Iterator::operator==(std::default_sentinel_t) const { return !stream_->batch.has_value(); }

Batches DataShard::iter_batches(const IterBatchesOptions& options) const {
  return Batches(std::make_shared<api::BatchStream>(api::BatchStream{data_, options}));
}

Rows DataShard::iter_rows() const { return Rows(iter_batches({.batch_size = 1, .prefetch_batches = 256})); }

std::int64_t DataShard::epoch() const { return data_->shard->epoch(); }

std::int64_t DataShard::rows() const { return data_->shard->rows(); }

Dict DataShard::state() const { return data_->shard->state(); }

void DataShard::load_state(const Dict& state) const { value_or_throw(data_->shard->load_state(state)); }

DataStats DataShard::stats() const {
  const auto stats = data_->shard->stats();
  return {stats.rows, stats.bytes, stats.batches, stats.wait_s, stats.peak_bytes, stats.retries};
}

namespace {

DataShard driver_shard(const std::shared_ptr<plan::Plan>& plan) {
  return DataShard(std::make_shared<api::ShardData>(value_or_throw(plan::whole_shard(plan))));
}

}  // namespace

Batches Dataset::iter_batches(const IterBatchesOptions& options) const {
  return driver_shard(plan_).iter_batches(options);
}

Rows Dataset::iter_rows() const { return driver_shard(plan_).iter_rows(); }

std::vector<DataShard> Dataset::streaming_split(int parts) const {
  if (parts < 1) throw ValueError(fmt::format("streaming_split({}): expected a number of at least 1", parts));
  std::vector<DataShard> shards;
  for (int rank = 0; rank < parts; ++rank) {
    data::ShardOptions options;
    options.rank = rank;
    options.world = options.max_world = parts;
    auto shard = value_or_throw(plan::make_shard(plan_, plan::ordering_of(*plan_, 0), options));
    shards.emplace_back(std::make_shared<api::ShardData>(std::move(shard)));
  }
  return shards;
}

}  // namespace trireme
