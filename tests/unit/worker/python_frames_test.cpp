#include "worker/python_frames.h"

#include <doctest/doctest.h>

namespace python_frames_test {

using namespace trireme::worker;

namespace {

const std::string kDump =
    "Thread 0x00007f00000000a0 (most recent call first):\n"
    "  <no Python frame>\n"
    "\n"
    "Current thread 0x00007f00000000b0 [Main] (most recent call first):\n"
    "  File \"/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py\", line 2806 in all_reduce\n"
    "  File \"/home/me/odd\", line 1 in x.py\", line 33 in step\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 5 in run\n"
    "  ...\n";

PythonFrame frame(const std::string& file, int line, const std::string& function) { return {file, line, function}; }

}  // namespace

TEST_CASE("the output of faulthandler is parsed by thread") {
  const auto threads = parse_python_dump(kDump);
  REQUIRE(threads.size() == 2);
  CHECK(threads.at(0x7f00000000a0).frames.empty());
  CHECK(threads.at(0x7f00000000a0).lines == std::vector<std::string>{"<no Python frame>"});
  const auto& frames = threads.at(0x7f00000000b0).frames;
  REQUIRE(frames.size() == 3);
  CHECK(frames[0].line == 2806);
  CHECK(frames[1].file == "/home/me/odd\", line 1 in x.py");
  CHECK(frames[1].line == 33);
  CHECK(frames[1].function == "step");
  CHECK(threads.at(0x7f00000000b0).lines.back() == "...");
}

TEST_CASE("invalid dumps yield no thread") {
  for (const char* dump : {"", "\n\n", "File \"a.py\", line 1 in f", "Thread 0xzz (most recent call first):\n  a"}) {
    CHECK(parse_python_dump(dump).empty());
  }
  const auto cut = parse_python_dump("Thread 0x10 (most recent call first):\n  File \"a.py");
  CHECK(cut.at(0x10).frames.empty());
}

TEST_CASE("the location is the innermost line of the user's code") {
  const std::vector<std::string> libraries = {"/usr/lib/python3.11", "/src/trireme"};
  struct Row {
    std::vector<PythonFrame> frames;
    std::string place;
  };
  for (const Row& row : {
           Row{{}, ""},
           Row{{frame("/home/me/train.py", 33, "step"), frame("/home/me/main.py", 1, "main")}, "train.py:33 in step"},
           Row{{frame("/run/pkg/data.py", 3, "load")}, "pkg/data.py:3 in load"},
           Row{{frame("/v/site-packages/torch/c10d.py", 28, "all_reduce"), frame("train.py", 33, "step")},
               "train.py:33 in step (in torch/c10d.py:28 all_reduce)"},
           Row{{frame("/usr/lib/python3.11/threading.py", 5, "wait"), frame("<string>", 1, "<module>")},
               "<string>:1 in <module> (in threading.py:5 wait)"},
           Row{{frame("/src/trireme/_session.py", 5, "report"), frame("<frozen runpy>", 1, "run")},
               "_session.py:5 in report"},
           Row{{frame("/usr/lib/python3.11x/mine.py", 5, "f")}, "mine.py:5 in f"},
       }) {
    CHECK(python_place(row.frames, libraries, "/run") == row.place);
  }
}

}  // namespace python_frames_test
