#pragma once

#include <set>
#include <string>
#include <vector>

namespace trireme::worker {

// The threads of this process that could still make progress by themselves, as "name (tid)". Excludes `blocked`, the
// calling thread, our own threads, transport threads that only move bytes, and threads that wait without a timeout for
// another thread of this process. An empty result proves that all of them were blocked at one instant. If the kernel
// does not show a thread's state, the thread counts as busy.
std::vector<std::string> busy_threads(const std::set<int>& blocked);

}  // namespace trireme::worker
