#include "checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/device_copies.h"
#include "checkpoint/parallel_copy.h"
#include "checkpoint/snapshot_buffer.h"
#include "checkpoint/state_tree.h"

namespace trireme::checkpoint {

// The unused buffers.
struct Snapshot::Shelf {
  std::mutex mutex;
  std::vector<std::unique_ptr<SnapshotBuffer>> spare;

  // The best fit. The states of one training have the same size, so it mostly fits exactly.
  std::unique_ptr<SnapshotBuffer> take(std::size_t size) {
    const std::lock_guard lock(mutex);
    auto distance = [&](const auto& buffer) { return std::max(buffer->size(), size) - std::min(buffer->size(), size); };
    const auto best = std::min_element(spare.begin(), spare.end(),
                                       [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    if (best == spare.end()) return nullptr;
    auto taken = std::move(*best);
    spare.erase(best);
    return taken;
  }

  void put_back(std::unique_ptr<SnapshotBuffer> buffer) {
    const std::lock_guard lock(mutex);
    spare.push_back(std::move(buffer));
  }
};

Snapshot::Snapshot(std::shared_ptr<Shelf> shelf, std::unique_ptr<SnapshotBuffer> buffer, std::string tree)
    : shelf_(std::move(shelf)), buffer_(std::move(buffer)), tree_(std::move(tree)) {}

Snapshot::~Snapshot() { shelf_->put_back(std::move(buffer_)); }

std::uint64_t Snapshot::num_bytes() const { return buffer_->size() + tree_.size(); }

base::Result<std::vector<storage::FileRecord>> Snapshot::write(const std::string& folder,
                                                               const SaveOptions& options) const {
  const std::string_view tensors(reinterpret_cast<const char*>(buffer_->data()), buffer_->size());
  TRIREME_ASSIGN(auto records, write_files(folder, {{kTensorsName, {tensors}}, {kTreeName, {tree_}}}, options),
                 "could not save a state into {}", folder);
  return records;
}

std::map<std::string, int> Snapshot::descriptors() const {
  return {{kTensorsName, buffer_->tensors_fd()}, {kTreeName, buffer_->tree_fd()}};
}

SnapshotPool::SnapshotPool(int threads) : threads_(threads), shelf_(std::make_shared<Snapshot::Shelf>()) {}

base::Result<std::shared_ptr<const Snapshot>> SnapshotPool::take(const Dict& state) {
  TRIREME_ASSIGN(auto layout, lay_out(state), "could not copy a state");
  auto buffer = shelf_->take(layout.tensors.size);
  if (!buffer) {
    TRIREME_ASSIGN(buffer, SnapshotBuffer::create());
  }
  TRIREME_TRY(buffer->resize(layout.tensors.size));
  TRIREME_TRY(buffer->write_tree(layout.tree));
  std::vector<CopyJob> jobs{{buffer->data(), layout.tensors.head.data(), layout.tensors.head.size()}};
  base::DeviceCopies from_devices;
  for (const auto& place : layout.tensors.places) {
    std::byte* to = buffer->data() + place.offset;
    if (auto device = place.tensor.on_device()) {
      from_devices.add(std::move(device), to);
    } else {
      jobs.push_back({to, place.tensor.data(), place.tensor.num_bytes()});
    }
  }
  copy_in_parallel(jobs, threads_);
  // Directly into the buffer: the bytes are copied once.
  const auto failure = from_devices.run([&](const DeviceBytes& kind) { buffer->pin_for(kind); });
  if (!failure.empty()) return base::error("could not copy a state: {}", failure);
  return std::shared_ptr<const Snapshot>(new Snapshot(shelf_, std::move(buffer), std::move(layout.tree)));
}

std::size_t SnapshotPool::num_spare() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->spare.size();
}

}  // namespace trireme::checkpoint
