#pragma once

#include <cstdint>
#include <string>

#include "trireme/value.h"

namespace trireme::api {

// How fast rank 0 receives its data, from its reports.
class DataRate {
 public:
  void count(const Dict& event);
  // "1.2M rows/s  48 MB/s  waited 3 %"; empty if nothing was read.
  const std::string& text() const { return text_; }

 private:
  std::int64_t attempt_ = 0;
  double time_ = 0;
  double rows_ = 0;
  double bytes_ = 0;
  double wait_s_ = 0;
  std::string text_;
};

}  // namespace trireme::api
