#pragma once

#include <string>

// The kernel's view of a process that cannot report its state itself.

namespace trireme::base {

// "stopped by a signal, 12 threads", "sleeping in futex_wait_queue, 3 threads", "gone". For any process on this
// machine.
std::string describe_process(int pid);

// Whether the process is running or waiting: neither stopped nor exited.
bool may_run(int pid);

// describe_process() for one thread of this process.
std::string describe_thread(int tid);

}  // namespace trireme::base
