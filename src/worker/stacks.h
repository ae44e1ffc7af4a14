#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

// The stacks of all threads of a worker, with Python and native frames, collected by the worker itself even if its
// threads hang. For hang reports and `trireme stack`.

namespace trireme::worker {

struct Stacks {
  std::string where;  // of the main thread, in one line: "train.py:33 in step (in torch/distributed/... all_reduce)"
  std::string text;   // of all threads
};

// Call it once in a worker, on its main thread and before the user's code.
void prepare_stacks();

// How Python dumps its frames: raising `signal` makes it write the frames of all threads to the file behind `fd` (which
// can be truncated), on the thread that raised it and without the interpreter lock. Code in library_folders is not the
// user's. `fd` must stay open until the process ends.
void set_python_dump(int signal, int fd, std::vector<std::string> library_folders);

// Call it from any thread, preferably one that the user's code does not know. Needs no lock of the interpreter, the
// loader or the user, and waits at most `timeout` for the threads, which stop for a few milliseconds. Without
// prepare_stacks(), or during another call, the text states the problem.
Stacks collect_stacks(base::Seconds timeout);

}  // namespace trireme::worker
