#pragma once

#include <set>
#include <string>
#include <vector>

namespace trireme::worker {

// Which threads of this process could still do something by themselves, as "name (tid)". Not: `blocked`, the calling
// one, our own, transports that only move bytes for others, and those that wait without a limit for another thread of
// this process. Empty proves that at one instant all of them stood still at the same time. Where the kernel does not
// tell, a thread counts as busy.
std::vector<std::string> busy_threads(const std::set<int>& blocked);

}  // namespace trireme::worker
