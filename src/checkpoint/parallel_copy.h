#pragma once

#include <cstddef>
#include <vector>

namespace trireme::checkpoint {

struct CopyJob {
  void* to;
  const void* from;
  std::size_t size;
};

// Uses several threads for large copies: one core does not use the full memory bandwidth. 0 threads: chosen
// automatically.
void copy_in_parallel(const std::vector<CopyJob>& jobs, int threads);

}  // namespace trireme::checkpoint
