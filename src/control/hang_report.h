#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::control {

// What is known of one rank when a gang seems to hang.
struct RankPlace {
  int rank = 0;
  std::int64_t reports = 0;  // so far
  double silent_s = 0.0;     // since the last of them, or since the function was entered
  bool answered = false;     // with its stacks
  bool returned = false;     // from its training function
  std::string where;         // as worker::Stacks has it
  std::string text;
  std::string process;  // where it did not answer: base::describe_process(), empty where nobody could look
};

struct HangReport {
  std::string summary;  // one line: who waits where, and for whom
  std::string text;     // for the file: the summary and every rank's stacks
};

HangReport hang_report(std::vector<RankPlace> ranks);

}  // namespace trireme::control
