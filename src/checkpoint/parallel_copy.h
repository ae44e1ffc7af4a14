#pragma once

#include <cstddef>
#include <vector>

namespace trireme::checkpoint {

struct CopyJob {
  void* to;
  const void* from;
  std::size_t size;
};

// Several threads where the bytes are worth it: one core alone does not use all of the memory's bandwidth.
// 0 threads: as many as are of use.
void copy_in_parallel(const std::vector<CopyJob>& jobs, int threads);

}  // namespace trireme::checkpoint
