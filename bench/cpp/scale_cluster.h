#pragma once

#include <string>

// A gang on a simulated cluster: the real engine for clusters and the real controller in this process, over TLS, and
// other processes that play the adapter, all agents and all workers.

namespace trireme::bench {

struct Cluster {
  int agents = 0;
  int workers_each = 0;
  bool direct = false;  // the workers connect to the controller and not through their agents
  int workers() const { return agents * workers_each; }
};

// CPU of this process, of all threads, CPU of the controller's thread alone, and wall seconds, in which the players
// compete for the cores.
struct Span {
  double cpu_s = 0;
  double controller_cpu_s = 0;
  double wall_s = 0;
};

struct ClusterCost {
  Span join;     // until every agent has described its node
  Span start;    // from the reservation to the last worker in the function
  Span restart;  // from the death of a worker to the last worker in the function again
  // While the workers of a node report at the same time, and each alone.
  double cpu_us_per_report = 0;
  double cpu_us_per_report_alone = 0;
};

// `program` is this program, started as `program --adapter AGENTS WORKERS_EACH DIRECT REPORTS_EACH` to play the
// cluster.
ClusterCost run_cluster(const Cluster& cluster, const std::string& program, const std::string& folder);

// In that process; returns when the engine ends.
void play_cluster(const Cluster& cluster, int reports_each);

}  // namespace trireme::bench
