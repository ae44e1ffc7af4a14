#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

// NCCL, if libtorch has it and its header was found when Trireme was built; see cmake/nccl.cmake.

namespace trireme::torch::detail {

// Why this build cannot use NCCL; empty: it can.
std::string no_nccl();

// Throws std::logic_error if no_nccl().
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout);

// NCCL's group call, for the lifetime of this object, if one of the process groups uses NCCL.
class NcclGroupCall {
 public:
  explicit NcclGroupCall(const std::vector<c10::intrusive_ptr<c10d::ProcessGroup>>& groups);
  ~NcclGroupCall();
  NcclGroupCall(const NcclGroupCall&) = delete;
  NcclGroupCall& operator=(const NcclGroupCall&) = delete;

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace trireme::torch::detail
