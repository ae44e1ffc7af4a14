#pragma once

#include <string>

// What the kernel tells about a process that cannot tell it itself.

namespace trireme::base {

// "stopped by a signal, 12 threads", "sleeping in futex_wait_queue, 3 threads", "gone". Of any process of this machine.
std::string describe_process(int pid);

// Whether it runs or waits: neither stopped nor ended.
bool may_run(int pid);

// describe_process() for one thread of this process.
std::string describe_thread(int tid);

}  // namespace trireme::base
