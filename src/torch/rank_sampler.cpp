#include "trireme/torch/rank_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "trireme/context.h"
#include "trireme/store.h"

namespace trireme::torch::detail {

RankSampler::RankSampler(std::size_t size, std::size_t batch_size, bool drop_last, const DataLoaderOptions& options)
    : size_(size),
      batch_size_(batch_size),
      rank_(static_cast<std::size_t>(context().world_rank)),
      ranks_(static_cast<std::size_t>(context().world_size)),
      drop_last_(drop_last),
      options_(options) {
  if (size_ == 0) throw std::invalid_argument("prepare_data_loader(): the dataset is empty");
  if (batch_size_ == 0) throw std::invalid_argument("prepare_data_loader(): batch_size is 0; it must be at least 1");
  if (num_batches() == 0) {
    throw std::invalid_argument(c10::str("prepare_data_loader(): batch_size ", batch_size_, " on ", ranks_,
                                         " ranks needs more than the ", size_,
                                         " samples of the dataset, and drop_last drops them all; reduce batch_size"));
  }
  if (ranks_ > 1) expect_same_on_all_ranks();
}

// Otherwise ranks would take different numbers of steps or the same samples. No rank waits: the first one publishes its
// settings, and the others compare.
void RankSampler::expect_same_on_all_ranks() const {
  const std::string mine = c10::str(size_, " samples in batches of ", batch_size_, drop_last_ ? " with drop_last" : "",
                                    options_.shuffle ? c10::str(", shuffled with seed ", options_.seed) : ", in order");
  const auto number = trireme::store::add(c10::str("torch/loaders_of/", rank_), 1);
  const auto first =
      trireme::store::compare_set(c10::str("torch/loader/", number), "", c10::str("rank ", rank_, " has ", mine));
  const std::size_t begin = first.find(" has ") + 5;
  if (first.substr(begin) == mine) return;
  throw std::invalid_argument(c10::str("prepare_data_loader(): the ranks have different data: ", first, ", and rank ",
                                       rank_, " has ", mine, "; use the same dataset and options on all ranks"));
}

// Rounds down to a full batch on every rank, or up to the same number of samples on every rank.
std::size_t RankSampler::end_of(std::size_t position) const {
  const std::size_t left = size_ - std::min(position, size_);
  const std::size_t step = drop_last_ ? batch_size_ * ranks_ : ranks_;
  return position + (drop_last_ ? left / step : (left + step - 1) / step) * step;
}

void RankSampler::begin(std::int64_t epoch, std::size_t position) {
  order_.resize(size_);
  if (options_.shuffle) {
    // The same order as Python's DistributedSampler.
    auto generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed + static_cast<std::uint64_t>(epoch));
    const auto shuffled =
        at::randperm(static_cast<std::int64_t>(size_), generator, at::TensorOptions().dtype(at::kLong));
    std::copy_n(shuffled.const_data_ptr<std::int64_t>(), size_, order_.begin());
  } else {
    std::iota(order_.begin(), order_.end(), 0);
  }
  next_ = position;
  end_ = end_of(position);
}

std::optional<std::vector<std::size_t>> RankSampler::next() {
  if (next_ >= end_) return std::nullopt;
  const std::size_t end = std::min(next_ + batch_size_ * ranks_, end_);
  std::vector<std::size_t> batch;
  batch.reserve(batch_size_);
  for (std::size_t i = next_ + rank_; i < end; i += ranks_) {
    batch.push_back(static_cast<std::size_t>(order_[i % size_]));
  }
  next_ = end;
  return batch;
}

std::size_t RankSampler::after(std::size_t position) const { return std::min(position + batch_size_ * ranks_, size_); }

std::size_t RankSampler::num_batches() const {
  const std::size_t step = batch_size_ * ranks_;
  return (end_of(0) + step - 1) / step;
}

// In the format of the Python loaders.
Dict RankSampler::state(std::int64_t epoch, std::size_t position) const {
  return {{"epoch", epoch}, {"samples", position}, {"seed", options_.seed}, {"size", size_}};
}

std::pair<std::int64_t, std::size_t> RankSampler::load(const Dict& state) {
  const auto size = state["size"].get<std::size_t>();
  if (size != size_) {
    throw ValueError(c10::str("load_state(): the position is for a dataset of ", size, " samples, but this one has ",
                              size_, "; use the same data, or start a new epoch without the state"));
  }
  const auto position = state["samples"].get<std::size_t>();
  const auto epoch = state["epoch"].get<std::int64_t>();
  options_.seed = static_cast<std::uint64_t>(state["seed"].get<std::int64_t>());
  if (!has_more(position)) return {epoch + 1, 0};
  return {epoch, position};
}

Place::Place(std::shared_ptr<RankSampler> shard, bool exact, const DataLoaderOptions& options)
    : shard_(std::move(shard)), exact_(exact) {
  // Registered even if it does not resume, so that the numbers of later loaders stay the same.
  source_.emplace("loader", [this] { return to_store(); });
  if (options.resume && source_->stored()) go_on_from(*source_->stored());
}

bool Place::begin() {
  const bool left = running_;
  if (left) end();
  running_ = true;
  source_->begin();
  shard_->begin(epoch_, position_);
  return !left;
}

void Place::end() {
  running_ = left_ = false;
  ++epoch_;
  position_ = 0;
}

void Place::load(const Dict& state) {
  std::tie(epoch_, position_) = shard_->load(state);
  running_ = left_ = false;
}

Dict Place::to_store() const { return left_ || !shard_->has_more(position_) ? shard_->state(epoch_ + 1, 0) : state(); }

void Place::go_on_from(const Dict& stored) {
  const Value *size = stored.find("size"), *samples = stored.find("samples");
  if (size && samples && size->get<std::size_t>() == shard_->size()) return load(stored);
  // Between two epochs the data may change. A Python loader may count other units than samples.
  for (const char* unit : {"samples", "batches", "steps"}) {
    const Value* done = stored.find(unit);
    if (!done || done->as_int() == 0) continue;
    throw ValueError(c10::str("prepare_data_loader(): the checkpoint was saved in the middle of an epoch over ",
                              size ? std::to_string(size->as_int()) : "an unknown number of", " ",
                              samples ? "samples" : unit, ", and this loader has ", shard_->size(),
                              " samples; use the same data, or start over with resume = false"));
  }
  epoch_ = stored["epoch"].as_int();
}

void Sampler::save(::torch::serialize::OutputArchive&) const {
  throw std::logic_error("save the position of a prepared loader with its state()");
}

void Sampler::load(::torch::serialize::InputArchive&) {
  throw std::logic_error("load the position of a prepared loader with its load_state()");
}

}  // namespace trireme::torch::detail
