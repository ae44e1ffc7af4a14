#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

// Where a worker is, told from within: the stacks of all threads, Python's frames and native ones, while the threads
// themselves may hang in anything. For hang reports and `trireme stack`.

namespace trireme::worker {

struct Stacks {
  std::string where;  // of the main thread, in one line: "train.py:33 in step (in torch/distributed/... all_reduce)"
  std::string text;   // of all threads
};

// Once in a worker, on its main thread and before the user's code.
void prepare_stacks();

// How Python tells its frames: raising `signal` makes it write those of all threads to the file behind `fd` (which can
// be truncated), on the thread that raised it and without the interpreter lock. What lies in library_folders is not the
// user's code. `fd` stays open for as long as the process lives.
void set_python_dump(int signal, int fd, std::vector<std::string> library_folders);

// From any thread, best from one that the user's code knows nothing of. Needs no lock of the interpreter, the loader or
// the user, and waits for the threads at most for `timeout`; they stand still for a few milliseconds meanwhile. With
// prepare_stacks() not called, or during another call, the text says so.
Stacks collect_stacks(base::Seconds timeout);

}  // namespace trireme::worker
