#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/data.h"
#include "trireme/export.h"

// Batches of datasets as libtorch tensors:
//
//   auto shard = trireme::get_dataset_shard("train");
//   for (auto& batch : trireme::torch::iter_batches(shard, {.batch_size = 32})) train(batch["x"], batch["y"]);

namespace trireme::torch {

namespace detail {
class Transfer;
}

// On the CPU the tensors share the memory of the batch.
class TRIREME_API TorchBatch {
 public:
  TorchBatch(Batch batch, std::map<std::string, at::Tensor, std::less<>> tensors)
      : batch_(std::move(batch)), tensors_(std::move(tensors)) {}

  std::int64_t rows() const { return batch_.rows(); }
  std::vector<std::string> columns() const { return batch_.columns(); }
  // Throws ValueError for a missing column, or one that cannot be a tensor: text, lists of different lengths, nulls.
  const at::Tensor& operator[](std::string_view column) const;
  // The columns that are tensors.
  const std::map<std::string, at::Tensor, std::less<>>& tensors() const { return tensors_; }
  std::vector<std::string_view> strings(std::string_view column) const { return batch_.strings(column); }

 private:
  Batch batch_;
  std::map<std::string, at::Tensor, std::less<>> tensors_;
};

// Types and device of the tensors.
struct TorchBatchesOptions {
  std::optional<c10::ScalarType> dtype = {};           // of all columns
  std::map<std::string, c10::ScalarType> dtypes = {};  // of some, by their names
  // Default: get_device(); outside of a training function the CPU.
  std::optional<c10::Device> device = {};
};

// One epoch of batches.
class TRIREME_API TorchBatches {
 public:
  TorchBatches(Batches batches, c10::Device device, TorchBatchesOptions options = {});
  ~TorchBatches();
  TorchBatches(TorchBatches&&) noexcept;

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = TorchBatch;
    using pointer = TorchBatch*;
    using reference = TorchBatch&;

    explicit Iterator(TorchBatches* batches) : batches_(batches) {}
    TorchBatch& operator*() const { return *batches_->now_; }
    TorchBatch* operator->() const { return &*batches_->now_; }
    Iterator& operator++() {
      batches_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !batches_->now_.has_value(); }

   private:
    TorchBatches* batches_;
  };

  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  void advance();
  void show();

  Batches batches_;
  TorchBatchesOptions options_;
  std::unique_ptr<detail::Transfer> transfer_;
  std::optional<Batches::Iterator> at_;
  std::optional<TorchBatch> now_;
};

// Batches are moved to get_device(); outside of a training function they stay on the CPU.
TRIREME_API TorchBatches iter_batches(const DataShard& shard, const IterBatchesOptions& options = {},
                                      bool move_to_device = true);
TRIREME_API TorchBatches iter_batches(const Dataset& dataset, const IterBatchesOptions& options = {},
                                      bool move_to_device = true);
// With other types than those of the columns, or on another device. Throws ValueError at the first batch if a column in
// `dtypes` does not exist.
TRIREME_API TorchBatches iter_batches(const DataShard& shard, const IterBatchesOptions& options,
                                      const TorchBatchesOptions& tensors);
TRIREME_API TorchBatches iter_batches(const Dataset& dataset, const IterBatchesOptions& options,
                                      const TorchBatchesOptions& tensors);

}  // namespace trireme::torch
