#pragma once

#include <torch/data/dataloader.h>
#include <torch/data/example.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/export.h"
#include "trireme/value.h"

// Each rank's part of a dataset of torch::data, in another order every epoch, from any position in it. The order is
// that of Python's DistributedSampler and prepare_data_loader() with the same seed.

namespace trireme::torch {

struct DataLoaderOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;      // the same on every rank
  bool move_to_device = true;  // batches, to get_device()
};

namespace detail {

// Which samples this rank takes.
class TRIREME_API Shard {
 public:
  // `size`: of the dataset; `batch_size`: of one rank.
  Shard(std::size_t size, std::size_t batch_size, bool drop_last, const DataLoaderOptions& options);

  // From there on; positions count samples of the epoch over all ranks.
  void begin(std::int64_t epoch, std::size_t position);
  std::optional<std::vector<std::size_t>> next();

  // Where the batch after the one at `position` begins, on all ranks.
  std::size_t after(std::size_t position) const;
  std::size_t num_batches() const;

  Dict state(std::int64_t epoch, std::size_t position) const;
  // Epoch and position of what state() returned, whose seed counts from now on. Throws ValueError where it is of
  // another dataset.
  std::pair<std::int64_t, std::size_t> load(const Dict& state);

 private:
  std::size_t end_of(std::size_t position) const;

  std::size_t size_, batch_size_, rank_, ranks_;
  bool drop_last_;
  DataLoaderOptions options_;
  std::vector<std::int64_t> order_;
  std::size_t next_ = 0, end_ = 0;
};

// libtorch's loaders keep a copy of their sampler; this one shares what the copies look at.
class TRIREME_API Sampler final : public ::torch::data::samplers::Sampler<> {
 public:
  explicit Sampler(std::shared_ptr<Shard> shard) : shard_(std::move(shard)) {}
  void reset(std::optional<std::size_t> = std::nullopt) override {}
  std::optional<std::vector<std::size_t>> next(std::size_t) override { return shard_->next(); }
  [[noreturn]] void save(::torch::serialize::OutputArchive&) const override;
  [[noreturn]] void load(::torch::serialize::InputArchive&) override;

 private:
  std::shared_ptr<Shard> shard_;
};

TRIREME_API c10::Device device_of_batches(const DataLoaderOptions& options);

template <typename T>
void move_to(T& value, const c10::Device& device) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    value = value.to(device, /*non_blocking=*/true);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... each) { (move_to(each, device), ...); }, value);
  } else if constexpr (requires { value.data.defined(), value.target; }) {
    move_to(value.data, device);
    move_to(value.target, device);
  } else if constexpr (requires { value.data.defined(); }) {
    move_to(value.data, device);
  } else if constexpr (requires { value.begin(), value.end(); }) {
    for (auto& each : value) move_to(each, device);
  }
}

}  // namespace detail

// Iterating over it runs through one epoch, the next time through the next one:
//
//   while (loader.epoch() < 5) {
//     for (auto& batch : loader) ...
//   }
//
// All ranks make the same number of steps, with batches of the same size: where the dataset does not divide, the last
// ones are filled up with samples from the epoch's beginning, or left out with drop_last.
template <typename Dataset>
class DataLoader {
 public:
  using Batch = typename Dataset::BatchType;
  static_assert(!Dataset::is_stateful,
                "a stateful dataset chooses its samples itself: give each rank its own part of it");

  DataLoader(Dataset dataset, const ::torch::data::DataLoaderOptions& loading, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)),
        loading_(loading),
        device_(detail::device_of_batches(options)),
        shard_(
            std::make_shared<detail::Shard>(size_of(dataset_), loading_.batch_size(), loading_.drop_last(), options)) {
    loading_.drop_last(false);  // left to the shard, which knows the other ranks
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;
    using pointer = Batch*;
    using reference = Batch&;

    explicit Iterator(DataLoader* loader) : loader_(loader) {}
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
  };

  // Begins the next epoch, or goes on in the one that load_state() was given. One at a time.
  Iterator begin() {
    if (running_) {  // left in the middle
      ++epoch_;
      position_ = 0;
      inner_.reset();
    }
    running_ = true;
    shard_->begin(epoch_, position_);
    if (!inner_) inner_ = ::torch::data::make_data_loader(dataset_, detail::Sampler(shard_), loading_);
    batches_.emplace(inner_->begin());
    fetch();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

  // The one that runs, or else the one that is next.
  std::int64_t epoch() const { return epoch_; }
  // Of an epoch, on every rank.
  std::size_t num_batches() const { return shard_->num_batches(); }

  // Everything before and with the current batch is done. It fits any number of ranks and any batch size, and the
  // loaders of Python.
  Dict state() const {
    if (!loading_.enforce_ordering()) {
      throw std::logic_error("with enforce_ordering(false) batches come in any order, so there is no position to save");
    }
    return shard_->state(epoch_, position_);
  }
  void load_state(const Dict& state) {
    std::tie(epoch_, position_) = shard_->load(state);
    running_ = false;
    batches_.reset();
    inner_.reset();
  }

 private:
  static std::size_t size_of(const Dataset& dataset) {
    const auto size = dataset.size();
    if (!size) throw std::invalid_argument("prepare_data_loader(): the dataset does not know its size()");
    return *size;
  }

  void advance() {
    ++*batches_;
    fetch();
  }
  void fetch() {
    if (*batches_ == inner_->end()) {
      batch_.reset();
      running_ = false;
      ++epoch_;
      position_ = 0;
      return;
    }
    batch_ = std::move(**batches_);
    if (!device_.is_cpu()) detail::move_to(*batch_, device_);
    position_ = shard_->after(position_);
  }

  using Inner = ::torch::data::StatelessDataLoader<Dataset, detail::Sampler>;

  Dataset dataset_;
  ::torch::data::DataLoaderOptions loading_;
  c10::Device device_;
  std::shared_ptr<detail::Shard> shard_;  // shared with the sampler
  std::int64_t epoch_ = 0;
  std::size_t position_ = 0;
  bool running_ = false;
  std::unique_ptr<Inner> inner_;
  std::optional<::torch::data::Iterator<Batch>> batches_;
  std::optional<Batch> batch_;
};

// `loading` is what libtorch's loaders take: batch size (of one rank), threads that load ahead, drop_last, ...
// Throws std::invalid_argument where there would be no batch at all.
template <typename Dataset>
DataLoader<Dataset> prepare_data_loader(Dataset dataset, const ::torch::data::DataLoaderOptions& loading,
                                        const DataLoaderOptions& options = {}) {
  return DataLoader<Dataset>(std::move(dataset), loading, options);
}

}  // namespace trireme::torch
