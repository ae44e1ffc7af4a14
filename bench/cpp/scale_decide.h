#pragma once

namespace trireme::bench {

// CPU seconds of the controller's decisions, without sockets, TLS and the event log: what grows with the gang.
struct DecisionCost {
  double place_s = 0;    // the gang on the nodes
  double start_s = 0;    // until the last worker has entered the function
  double restart_s = 0;  // from the death of a worker until then again; the others keep their processes
  double stop_s = 0;     // until every process has ended
  double us_per_report = 0;
};

DecisionCost run_decisions(int nodes, int workers_each);

}  // namespace trireme::bench
