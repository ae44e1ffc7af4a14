#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "worker/symbols.h"

// The native stacks of the threads of this process, written by the threads themselves in a signal handler: without
// ptrace, and without locks that a thread of the user could hold.

namespace trireme::worker {

struct ThreadStack {
  int tid = 0;
  std::string name;
  std::uintptr_t pthread = 0;   // 0 if it did not answer and is not the main thread
  std::vector<Address> frames;  // innermost first; each address is inside the call
  std::string silence;          // why it did not answer; empty if it did
};

// SIGRTMIN + 6. Python's dump is on SIGRTMIN + 7.
int stack_signal();

// Installs the handler of stack_signal(), unless the program has installed its own.
//
// The handler uses SA_RESTART, so read, write, accept, futex and similar calls are restarted. Calls that Linux never
// restarts (poll, select, epoll_wait, nanosleep, sigtimedwait, socket calls with SO_RCVTIMEO) return EINTR early:
// Python retries all of them (PEP 475), and so do gloo and NCCL.
void install_stack_handler();

// Signals all other threads and waits at most `timeout` until they have answered. Threads that have answered stay
// stopped until the last one has, and while `meanwhile` runs: it must not take a lock or allocate memory, because one
// of them may hold the allocator's lock. Returns an empty list if the handler is not (or no longer) installed or
// another collection is in progress; `problem` states which.
std::vector<ThreadStack> collect_threads(base::Seconds timeout, const std::function<void()>& meanwhile,
                                         std::string& problem);

}  // namespace trireme::worker
