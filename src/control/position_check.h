#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/value.h"

namespace trireme::control {

// Compares the positions in split datasets that the ranks of an attempt have at the same report. A checkpoint has one
// position for all ranks. If ranks report different numbers of times per step, it is wrong for some of them: a restart
// would repeat their rows or skip them.
class PositionCheck {
 public:
  void report(int rank, std::int64_t index, const Dict& positions);
  // How the ranks differed at report `index`; empty if they did not. Forgets this report and the ones before it.
  std::string take_difference(std::int64_t index);

  bool operator==(const PositionCheck&) const = default;

 private:
  struct Place {
    int rank = 0;  // the first that reported it
    std::int64_t epoch = 0;
    std::int64_t row = 0;
    bool operator==(const Place&) const = default;
  };
  struct Reported {
    std::map<std::string, Place> places;  // by dataset
    std::string difference;
    bool operator==(const Reported&) const = default;
  };

  std::map<std::int64_t, Reported> reports_;  // by index
};

}  // namespace trireme::control
