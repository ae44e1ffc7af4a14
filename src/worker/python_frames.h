#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Parses the output of Python's faulthandler.

namespace trireme::worker {

struct PythonFrame {
  std::string file;
  int line = 0;
  std::string function;
};

struct PythonThread {
  std::vector<std::string> lines;   // as they were written
  std::vector<PythonFrame> frames;  // innermost first
};

// By the thread's pthread_t, which is what Python prints.
std::map<std::uintptr_t, PythonThread> parse_python_dump(std::string_view dump);

// "train.py:33 in step (in torch/distributed/distributed_c10d.py:2806 all_reduce)": the innermost frame outside of the
// libraries, followed by the innermost frame if that is a different one. Files in `folder` are shown relative to it.
// Empty without frames.
std::string python_place(const std::vector<PythonFrame>& frames, const std::vector<std::string>& library_folders,
                         const std::string& folder);

}  // namespace trireme::worker
