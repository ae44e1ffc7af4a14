#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::control {

// The state of one rank when a gang seems to hang.
struct RankPlace {
  int rank = 0;
  std::int64_t reports = 0;  // so far
  double silent_s = 0.0;     // since the last report, or since the function was entered
  bool answered = false;     // with its stacks
  bool returned = false;     // from its training function
  std::string where;         // worker::Stacks::where
  std::string text;
  std::string process;  // if it did not answer: base::describe_process(), empty if not available
};

struct HangReport {
  std::string summary;                  // one line: where ranks wait, and for which ranks
  std::string text;                     // for the file: the summary and the stacks of every rank
  std::vector<std::string> where = {};  // RankPlace::where of every rank; empty if it did not answer
};

HangReport hang_report(std::vector<RankPlace> ranks);

}  // namespace trireme::control
