#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "worker/symbols.h"

// The native stacks of the threads of this process, told by the threads themselves in a signal handler: no ptrace, and
// no lock that a thread of the user could hold.

namespace trireme::worker {

struct ThreadStack {
  int tid = 0;
  std::string name;
  std::uintptr_t pthread = 0;   // 0 where it did not answer and is not the main one
  std::vector<Address> frames;  // innermost first; each lies within the call
  std::string silence;          // why it did not answer; else empty
};

// SIGRTMIN + 6. Python's dump is on SIGRTMIN + 7.
int stack_signal();

// Installs the handler of stack_signal(), unless the program has one of its own there already.
//
// The handler asks for restarts (SA_RESTART), so read, write, accept, futex and their kin go on. What Linux never
// restarts (poll, select, epoll_wait, nanosleep, sigtimedwait, socket calls with SO_RCVTIMEO) returns EINTR earlier
// than it would have: Python retries all of them (PEP 475), and so do gloo and NCCL.
void install_stack_handler();

// Asks all other threads and waits until they have answered, at most for `timeout`. Threads that have answered stand
// still until the last one has, and while `meanwhile` runs: it may take no lock and no memory, because one of them may
// hold the allocator's lock. An empty list where the handler is not (or no longer) installed or another collection goes
// on; `problem` tells which.
std::vector<ThreadStack> collect_threads(base::Seconds timeout, const std::function<void()>& meanwhile,
                                         std::string& problem);

}  // namespace trireme::worker
