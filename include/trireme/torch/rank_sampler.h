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

// The samples of a rank and its position: the part of a data loader that is not a template.

namespace trireme::torch {

struct DataLoaderOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;      // the same on every rank
  bool move_to_device = true;  // batches, to get_device()
  // Loads one batch ahead and copies it during the work on the previous one. Default: only with a GPU.
  std::optional<bool> prefetch = {};
  // Stores the position with every reported checkpoint, and resumes from it after a restart.
  bool resume = true;
};

namespace detail {

class TRIREME_API RankSampler {
 public:
  // `size`: of the dataset; `batch_size`: per rank. Throws std::invalid_argument if they differ between ranks.
  RankSampler(std::size_t size, std::size_t batch_size, bool drop_last, const DataLoaderOptions& options);

  // Starts at `position`, which counts the samples of the epoch over all ranks.
  void begin(std::int64_t epoch, std::size_t position);
  std::optional<std::vector<std::size_t>> next();

  // The position of the batch after the one at `position`, over all ranks.
  std::size_t after(std::size_t position) const;
  std::size_t num_batches() const;

  Dict state(std::int64_t epoch, std::size_t position) const;
  // The epoch and position in a result of state(); the start of the next epoch if the stored one is complete. Uses the
  // stored seed from then on. Throws ValueError if the dataset has a different size.
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

// The position of a loader: after the last batch that it returned.
class TRIREME_API Place {
 public:
  // `exact`: batches are in order, so that a position within the epoch is defined.
  Place(std::shared_ptr<RankSampler> shard, bool exact, const DataLoaderOptions& options);

  // Returns false if the previous epoch was left early; that epoch ends.
  bool begin();
  void step() { position_ = shard_->after(position_); }
  void end();
  // The iteration over that epoch has ended, complete or not.
  void leave(std::int64_t epoch) { left_ |= running_ && epoch == epoch_; }

  std::int64_t epoch() const { return epoch_; }
  Dict state() const { return shard_->state(epoch_, exact_ ? position_ : 0); }
  void load(const Dict& state);

 private:
  // The position at which a restarted worker resumes.
  Dict to_store() const;
  void go_on_from(const Dict& stored);

  std::shared_ptr<RankSampler> shard_;  // shared with the loader's sampler
  bool exact_;
  std::int64_t epoch_ = 0;
  std::size_t position_ = 0;
  bool running_ = false;
  bool left_ = false;                                      // a restart begins with the next epoch
  std::optional<trireme::detail::PositionSource> source_;  // created last
};

// libtorch's loaders copy their sampler; the copies of this one share their state.
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
