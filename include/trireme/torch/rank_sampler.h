#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/export.h"
#include "trireme/position.h"
#include "trireme/value.h"

// Which samples a rank takes, and where it is: what of a data loader is not a template.

namespace trireme::torch {

struct DataLoaderOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;      // the same on every rank
  bool move_to_device = true;  // batches, to get_device()
  // A batch ahead: it is copied while the one before is worked on. Where not given, with a GPU.
  std::optional<bool> prefetch = {};
  // The place is stored with every checkpoint that is reported, and a restarted worker goes on from it.
  bool resume = true;
};

namespace detail {

class TRIREME_API RankSampler {
 public:
  // `size`: of the dataset; `batch_size`: of one rank. Throws std::invalid_argument where another rank has others.
  RankSampler(std::size_t size, std::size_t batch_size, bool drop_last, const DataLoaderOptions& options);

  // From there on; positions count samples of the epoch over all ranks.
  void begin(std::int64_t epoch, std::size_t position);
  std::optional<std::vector<std::size_t>> next();

  // Where the batch after the one at `position` begins, on all ranks.
  std::size_t after(std::size_t position) const;
  std::size_t num_batches() const;

  Dict state(std::int64_t epoch, std::size_t position) const;
  // Epoch and position of what state() returned, whose seed counts from now on; that of the next epoch where nothing is
  // left of the one. Throws ValueError where it is of another dataset.
  std::pair<std::int64_t, std::size_t> load(const Dict& state);

  std::size_t size() const { return size_; }
  bool has_more(std::size_t position) const { return end_of(position) > position; }

 private:
  std::size_t end_of(std::size_t position) const;
  void expect_same_on_all_ranks() const;

  std::size_t size_, batch_size_, rank_, ranks_;
  bool drop_last_;
  DataLoaderOptions options_;
  std::vector<std::int64_t> order_;
  std::size_t next_ = 0, end_ = 0;
};

// Where a loader is in its data: after the batch that it has given out last.
class TRIREME_API Place {
 public:
  // `exact`: batches come in order, so that there is a place between two of them.
  Place(std::shared_ptr<RankSampler> shard, bool exact, const DataLoaderOptions& options);

  // Returns false where an epoch was left in the middle, which is over by that.
  bool begin();
  void step() { position_ = shard_->after(position_); }
  void end();
  // Nobody iterates over that epoch any more, at its end or not.
  void leave(std::int64_t epoch) { left_ |= running_ && epoch == epoch_; }

  std::int64_t epoch() const { return epoch_; }
  Dict state() const { return shard_->state(epoch_, exact_ ? position_ : 0); }
  void load(const Dict& state);

 private:
  // Where somebody who starts now has to go on.
  Dict to_store() const;
  void go_on_from(const Dict& stored);

  std::shared_ptr<RankSampler> shard_;  // shared with the loader's sampler
  bool exact_;
  std::int64_t epoch_ = 0;
  std::size_t position_ = 0;
  bool running_ = false;
  bool left_ = false;                                      // so that the next epoch is next
  std::optional<trireme::detail::PositionSource> source_;  // made once the rest is
};

// libtorch's loaders keep a copy of their sampler; this one shares what the copies look at.
class TRIREME_API Sampler final : public ::torch::data::samplers::Sampler<> {
 public:
  explicit Sampler(std::shared_ptr<RankSampler> shard) : shard_(std::move(shard)) {}
  void reset(std::optional<std::size_t> = std::nullopt) override {}
  std::optional<std::vector<std::size_t>> next(std::size_t) override { return shard_->next(); }
  [[noreturn]] void save(::torch::serialize::OutputArchive&) const override;
  [[noreturn]] void load(::torch::serialize::InputArchive&) override;

 private:
  std::shared_ptr<RankSampler> shard_;
};

}  // namespace detail
}  // namespace trireme::torch
