// bench_scale [workers...]: the controller's cost of a report, with this number of workers connected over real sockets.
// bench_scale --cluster AGENTS WORKERS_EACH...: a gang on simulated nodes; see scale_cluster.h. --cluster-direct: its
//   workers connect to the controller and not through their agents.
// bench_scale --decide AGENTS WORKERS_EACH...: the decisions for such a gang, without connections; see scale_decide.h.
// Prints one JSON object per line.

#include "scale.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/hex.h"
#include "scale_cluster.h"
#include "scale_decide.h"
#include "wire/secret.h"

namespace {

using trireme::bench::Crowd;
namespace wire = trireme::wire;

constexpr int kReports = 200'000;
constexpr int kSpareDescriptors = 64;

int start_pipe[2];

// In a child process, which dies with this one.
pid_t in_child(const std::function<void()>& run) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    std::perror("fork");
    std::exit(1);
  }
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  try {
    run();
  } catch (const std::exception& failure) {
    fmt::print(stderr, "bench_scale: {}\n", failure.what());
    ::_exit(1);
  }
  ::_exit(0);
}

int descriptors_allowed() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

Crowd make_crowd(int workers) {
  Crowd crowd;
  crowd.workers = workers;
  crowd.reports_each = std::max(10, kReports / workers) + 1;
  crowd.heartbeat_s = 0.4 * std::max(1.0, workers / 500.0);  // as in api::Run
  crowd.run_id = trireme::base::to_hex(wire::random_bytes(6));
  crowd.secret = wire::random_bytes(wire::kSecretSize);
  crowd.address.name = "trireme-bench-" + crowd.run_id;
  return crowd;
}

// The players wait for the end of the pipe, which is closed when the controller listens.
void start_players(const Crowd& crowd, int at_most) {
  for (int first = 0; first < crowd.workers; first += at_most) {
    in_child([&] {
      ::close(start_pipe[1]);
      char nothing = 0;
      (void)!::read(start_pipe[0], &nothing, 1);
      trireme::bench::play_workers(crowd, first, std::min(crowd.workers, first + at_most));
    });
  }
}

void measure(int workers, int descriptors) {
  if (descriptors < workers + kSpareDescriptors) {
    throw std::runtime_error(
        fmt::format("{} workers need as many file descriptors; `ulimit -Hn` is {}", workers, descriptors));
  }
  if (::pipe(start_pipe) != 0) throw std::runtime_error("pipe");
  const Crowd crowd = make_crowd(workers);
  start_players(crowd, descriptors - kSpareDescriptors);
  auto folder = std::filesystem::temp_directory_path() / ("trireme-bench-" + crowd.run_id);
  std::filesystem::create_directories(folder);
  const auto cost = trireme::bench::run_controller(crowd, folder, [] { ::close(start_pipe[1]); });
  std::filesystem::remove_all(folder);
  fmt::print(
      "{{\"workers\": {}, \"cpu_us_per_report\": {:.3f}, \"reports_per_second\": {:.0f}, \"bytes_per_worker\": "
      "{:.0f}}}\n",
      workers, cost.cpu_us_per_report, cost.reports_per_second, cost.bytes_per_worker);
  std::fflush(stdout);
}

void measure_cluster(const trireme::bench::Cluster& cluster, int descriptors) {
  const int needed = cluster.workers() + cluster.agents + kSpareDescriptors;
  if (descriptors < needed) {
    throw std::runtime_error(fmt::format("needs {} file descriptors; `ulimit -Hn` is {}", needed, descriptors));
  }
  const auto folder =
      std::filesystem::temp_directory_path() / ("trireme-bench-" + trireme::base::to_hex(wire::random_bytes(6)));
  std::filesystem::create_directories(folder);
  const auto cost = trireme::bench::run_cluster(cluster, std::filesystem::read_symlink("/proc/self/exe"), folder);
  std::filesystem::remove_all(folder);
  fmt::print(
      "{{\"workers\": {}, \"agents\": {}, \"join_cpu_s\": {:.3f}, \"start_cpu_s\": {:.3f}, "
      "\"start_controller_cpu_s\": {:.3f}, \"start_s\": {:.3f}, \"cpu_us_per_report\": {:.3f}, "
      "\"cpu_us_per_report_alone\": {:.3f}, \"restart_cpu_s\": {:.3f}, "
      "\"restart_controller_cpu_s\": {:.3f}, \"restart_s\": {:.3f}}}\n",
      cluster.workers(), cluster.agents, cost.join.cpu_s, cost.start.cpu_s, cost.start.controller_cpu_s,
      cost.start.wall_s, cost.cpu_us_per_report, cost.cpu_us_per_report_alone, cost.restart.cpu_s,
      cost.restart.controller_cpu_s, cost.restart.wall_s);
  std::fflush(stdout);
}

void measure_decisions(int nodes, int workers_each) {
  const auto cost = trireme::bench::run_decisions(nodes, workers_each);
  fmt::print(
      "{{\"workers\": {}, \"agents\": {}, \"place_s\": {:.3f}, \"start_s\": {:.3f}, \"restart_s\": {:.3f}, \"stop_s\": "
      "{:.3f}, \"us_per_report\": {:.3f}}}\n",
      nodes * workers_each, nodes, cost.place_s, cost.start_s, cost.restart_s, cost.stop_s, cost.us_per_report);
  std::fflush(stdout);
}

// A separate process for each size, so that memory is measured from the same baseline.
bool in_turn(const std::function<void()>& measure_one) {
  const pid_t pid = in_child(measure_one);
  int status = 0;
  return ::waitpid(pid, &status, 0) == pid && status == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--adapter" && argc == 6) {
    descriptors_allowed();
    trireme::bench::play_cluster({std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]) == 1}, std::atoi(argv[5]));
    return 0;
  }
  if (mode == "--cluster" || mode == "--cluster-direct") {
    const int descriptors = descriptors_allowed();
    for (int i = 2; i + 1 < argc; i += 2) {
      const trireme::bench::Cluster cluster{std::atoi(argv[i]), std::atoi(argv[i + 1]), mode == "--cluster-direct"};
      if (!in_turn([&] { measure_cluster(cluster, descriptors); })) return 1;
    }
    return 0;
  }
  if (mode == "--decide") {
    for (int i = 2; i + 1 < argc; i += 2) {
      if (!in_turn([&] { measure_decisions(std::atoi(argv[i]), std::atoi(argv[i + 1])); })) return 1;
    }
    return 0;
  }
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {100, 1000, 10000};
  const int descriptors = descriptors_allowed();
  for (const int workers : sizes) {
    if (!in_turn([&] { measure(workers, descriptors); })) return 1;
  }
}
