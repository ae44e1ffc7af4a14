#pragma once

#include <torch/data/dataloader.h>
#include <torch/data/example.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "trireme/torch/rank_sampler.h"
#include "trireme/torch/transfer.h"
#include "trireme/value.h"

// Each rank's part of a torch::data dataset, shuffled differently every epoch, resumable from any position. The order
// is the same as in Python's DistributedSampler and prepare_data_loader() with the same seed.

namespace trireme::torch {

// Each iteration over the loader is one epoch:
//
//   while (loader.epoch() < 5) {
//     for (auto& batch : loader) ...
//   }
//
// All ranks take the same number of steps, with batches of the same size. If the dataset is not divisible, the last
// batches are filled with samples from the start of the epoch, or dropped with drop_last. In a worker that starts from
// a checkpoint, the first iteration resumes at the position that the loader had when the checkpoint was reported.
template <typename Dataset>
class DataLoader {
 public:
  using Batch = typename Dataset::BatchType;
  static_assert(!Dataset::is_stateful,
                "a stateful dataset chooses its own samples: create it with a different part on each rank");

  DataLoader(Dataset dataset, const ::torch::data::DataLoaderOptions& loading, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)), loading_(loading) {
    const c10::Device device = detail::device_of_batches(options.move_to_device);
    ahead_ = options.prefetch.value_or(!device.is_cpu());
    shard_ =
        std::make_shared<detail::RankSampler>(size_of(dataset_), loading_.batch_size(), loading_.drop_last(), options);
    place_ = std::make_shared<detail::Place>(shard_, loading_.enforce_ordering(), options);
    transfer_ = std::make_unique<detail::Transfer>(device, ahead_);
    loading_.drop_last(false);  // done by the RankSampler, for all ranks
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;
    using pointer = Batch*;
    using reference = Batch&;

    explicit Iterator(DataLoader* loader)
        : loader_(loader),
          alive_(nullptr, [place = loader->place_, epoch = loader->epoch()](void*) { place->leave(epoch); }) {}
    Batch& operator*() const { return *loader_->batch_; }
    Batch* operator->() const { return &*loader_->batch_; }
    Iterator& operator++() {
      loader_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !loader_->batch_.has_value(); }

   private:
    DataLoader* loader_;
    std::shared_ptr<void> alive_;  // shared by copies; destroying the last one marks the epoch as left
  };

  // Starts the next epoch, or resumes the one passed to load_state(). Only one iteration at a time.
  Iterator begin() {
    if (!place_->begin()) forget();
    if (!inner_) inner_ = ::torch::data::make_data_loader(dataset_, detail::Sampler(shard_), loading_);
    batches_.emplace(inner_->begin());
    taken_any_ = false;
    if (ahead_) coming_ = take();
    advance();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

  // The current epoch, or the next one between epochs.
  std::int64_t epoch() const { return place_->epoch(); }
  // Per epoch and rank.
  std::size_t num_batches() const { return shard_->num_batches(); }

  // The position after the current batch; with enforce_ordering(false), the start of this epoch. It can be loaded with
  // any number of ranks and any batch size, and by the Python loaders.
  Dict state() const { return place_->state(); }
  // The next iteration resumes from there instead of the checkpoint's position.
  void load_state(const Dict& state) {
    place_->load(state);
    forget();
  }

 private:
  static std::size_t size_of(const Dataset& dataset) {
    const auto size = dataset.size();
    if (!size) throw std::invalid_argument("prepare_data_loader(): the dataset has no size()");
    return *size;
  }

  void forget() {
    batches_.reset();
    batch_.reset();
    coming_.reset();
    inner_.reset();
  }

  void advance() {
    batch_ = ahead_ ? std::exchange(coming_, std::nullopt) : take();
    if (!batch_) return place_->end();
    transfer_->end(*batch_);
    if (ahead_) coming_ = take();
    place_->step();
  }

  std::optional<Batch> take() {
    if (taken_any_) ++*batches_;
    taken_any_ = true;
    if (*batches_ == inner_->end()) return std::nullopt;
    Batch batch = std::move(**batches_);
    transfer_->begin(batch);
    return batch;
  }

  using Inner = ::torch::data::StatelessDataLoader<Dataset, detail::Sampler>;

  Dataset dataset_;
  ::torch::data::DataLoaderOptions loading_;
  bool ahead_ = false;
  std::shared_ptr<detail::RankSampler> shard_;  // shared with the sampler
  std::shared_ptr<detail::Place> place_;        // shared with iterators; report() uses it, even after a move
  std::unique_ptr<detail::Transfer> transfer_;
  std::unique_ptr<Inner> inner_;
  std::optional<::torch::data::Iterator<Batch>> batches_;
  bool taken_any_ = false;
  std::optional<Batch> batch_;
  std::optional<Batch> coming_;  // with ahead_: loaded, not returned yet
};

// `loading`: libtorch's options: batch size (per rank), threads that load ahead, drop_last, ...
// Every rank must pass the same options and a dataset of the same size. Throws std::invalid_argument if they differ, or
// if there would be no batch.
template <typename Dataset>
DataLoader<Dataset> prepare_data_loader(Dataset dataset, const ::torch::data::DataLoaderOptions& loading,
                                        const DataLoaderOptions& options = {}) {
  return DataLoader<Dataset>(std::move(dataset), loading, options);
}

}  // namespace trireme::torch
