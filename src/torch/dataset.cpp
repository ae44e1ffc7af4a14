#include "trireme/torch/dataset.h"

#include <algorithm>
#include <stdexcept>

#include "trireme/torch/tensor.h"
#include "trireme/torch/torch.h"
#include "trireme/torch/transfer.h"

namespace trireme::torch {
namespace {

// Skips columns that cannot be tensors; operator[] reports the reason.
std::map<std::string, at::Tensor, std::less<>> tensors_of(const Batch& batch, const TorchBatchesOptions& options) {
  const auto columns = batch.columns();
  for (const auto& [name, dtype] : options.dtypes) {
    if (std::find(columns.begin(), columns.end(), name) != columns.end()) continue;
    std::string there;
    for (const auto& column : columns) there += (there.empty() ? "" : ", ") + column;
    throw ValueError("dtypes: no column named '" + name + "'; the columns are " + there);
  }
  std::map<std::string, at::Tensor, std::less<>> tensors;
  for (const auto& column : columns) {
    const auto found = batch.find_tensor(column);
    if (!found) continue;
    auto tensor = to_torch(*found);
    const auto asked = options.dtypes.find(column);
    if (asked != options.dtypes.end()) tensor = tensor.to(asked->second);
    else if (options.dtype) tensor = tensor.to(*options.dtype);
    tensors.emplace(column, std::move(tensor));
  }
  return tensors;
}

c10::Device device_here(bool move) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (!move) return cpu;
  try {
    return get_device();
  } catch (const std::runtime_error&) {  // outside of a training function
    return cpu;
  }
}

}  // namespace

const at::Tensor& TorchBatch::operator[](std::string_view column) const {
  if (auto found = tensors_.find(column); found != tensors_.end()) return found->second;
  (void)batch_[column];  // throws the reason
  throw ValueError("column '" + std::string(column) + "' cannot be converted to a tensor");
}

TorchBatches::TorchBatches(Batches batches, c10::Device device, TorchBatchesOptions options)
    : batches_(std::move(batches)),
      options_(std::move(options)),
      transfer_(std::make_unique<detail::Transfer>(device, /*ahead=*/false)) {}

TorchBatches::~TorchBatches() = default;
TorchBatches::TorchBatches(TorchBatches&&) noexcept = default;

TorchBatches::Iterator TorchBatches::begin() {
  at_.emplace(batches_.begin());
  show();
  return Iterator(this);
}

void TorchBatches::advance() {
  ++*at_;
  show();
}

void TorchBatches::show() {
  now_.reset();
  if (*at_ == std::default_sentinel) return;
  auto tensors = tensors_of(**at_, options_);
  transfer_->begin(tensors);
  now_.emplace(**at_, std::move(tensors));
}

TorchBatches iter_batches(const DataShard& shard, const IterBatchesOptions& options, bool move_to_device) {
  return {shard.iter_batches(options), device_here(move_to_device)};
}

TorchBatches iter_batches(const Dataset& dataset, const IterBatchesOptions& options, bool move_to_device) {
  return {dataset.iter_batches(options), device_here(move_to_device)};
}

TorchBatches iter_batches(const DataShard& shard, const IterBatchesOptions& options,
                          const TorchBatchesOptions& tensors) {
  return {shard.iter_batches(options), tensors.device.value_or(device_here(true)), tensors};
}

TorchBatches iter_batches(const Dataset& dataset, const IterBatchesOptions& options,
                          const TorchBatchesOptions& tensors) {
  return {dataset.iter_batches(options), tensors.device.value_or(device_here(true)), tensors};
}

}  // namespace trireme::torch
