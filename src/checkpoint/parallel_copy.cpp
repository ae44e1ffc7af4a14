#include "checkpoint/parallel_copy.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace trireme::checkpoint {
namespace {

constexpr std::size_t kChunk = std::size_t{4} << 20;
// Below this size, starting a thread takes longer than the copy.
constexpr std::size_t kWorthAThread = std::size_t{16} << 20;
// Fewer threads than this saturate the memory bandwidth of all machines we know.
constexpr std::size_t kMostThreads = 8;

std::size_t usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? static_cast<std::size_t>(CPU_COUNT(&cores)) : 1;
}

// Pieces of similar size, so that threads with a free core process more of them.
std::vector<CopyJob> cut(const std::vector<CopyJob>& jobs) {
  std::vector<CopyJob> chunks;
  for (const auto& job : jobs) {
    for (std::size_t at = 0; at < job.size; at += kChunk) {
      chunks.push_back({static_cast<std::byte*>(job.to) + at, static_cast<const std::byte*>(job.from) + at,
                        std::min(kChunk, job.size - at)});
    }
  }
  return chunks;
}

}  // namespace

void copy_in_parallel(const std::vector<CopyJob>& jobs, int threads) {
  std::size_t bytes = 0;
  for (const auto& job : jobs) bytes += job.size;
  auto wanted = static_cast<std::size_t>(threads);
  if (threads <= 0) wanted = std::clamp(bytes / kWorthAThread, std::size_t{1}, std::min(usable_cores(), kMostThreads));
  const auto chunks = cut(jobs);
  std::atomic<std::size_t> next{0};
  auto work = [&] {
    for (std::size_t i = next++; i < chunks.size(); i = next++) {
      std::memcpy(chunks[i].to, chunks[i].from, chunks[i].size);
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(work);
  work();
}

}  // namespace trireme::checkpoint
