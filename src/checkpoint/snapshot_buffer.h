#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "trireme/tensor.h"

namespace trireme::checkpoint {

// Memory behind descriptors, for the two files of a state. It keeps its pages: refilling it with the same number of
// bytes causes no page faults, which cost more than the copy itself.
class SnapshotBuffer {
 public:
  static base::Result<std::unique_ptr<SnapshotBuffer>> create();
  SnapshotBuffer(const SnapshotBuffer&) = delete;
  SnapshotBuffer& operator=(const SnapshotBuffer&) = delete;
  ~SnapshotBuffer();

  // The content is undefined afterwards.
  base::Result<void> resize(std::size_t size);
  base::Result<void> write_tree(std::string_view json);
  // Until the size changes, copies from the device are fast.
  void pin_for(const DeviceBytes& device);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int tensors_fd() const { return tensors_.get(); }
  int tree_fd() const { return tree_.get(); }

 private:
  SnapshotBuffer(base::Fd tensors, base::Fd tree) : tensors_(std::move(tensors)), tree_(std::move(tree)) {}

  base::Fd tensors_;
  base::Fd tree_;
  std::byte* data_ = nullptr;
  std::size_t mapped_ = 0;
  std::size_t size_ = 0;
  bool pin_tried_ = false;     // for the current memory
  std::shared_ptr<void> pin_;  // null: not pinned
};

}  // namespace trireme::checkpoint
