#pragma once

#include <cstdint>
#include <string>

#include "wire/address.h"

// The two sides of bench/scale: a real controller whose engine starts no processes, and processes that play workers.

namespace trireme::bench {

struct Crowd {
  int workers = 0;
  int reports_each = 0;  // the first is not measured
  double heartbeat_s = 0;
  wire::Address address;
  std::string secret;
  std::string run_id;
};

// Plays the workers [first, last) until the controller closes their connections. Every worker has at most one report
// in flight, so the controller reads them one by one, its worst case.
void play_workers(const Crowd& crowd, int first, int last);

struct Cost {
  double cpu_us_per_report = 0;   // of the controller's thread, independent of other load
  double reports_per_second = 0;  // by the wall clock, which includes waiting for the players
  double bytes_per_worker = 0;    // growth of resident memory, from before the first connection to the last report
};

// Runs the controller in this process until every worker has sent its reports. `listening` is called once workers may
// connect.
Cost run_controller(const Crowd& crowd, const std::string& folder, void (*listening)());

}  // namespace trireme::bench
