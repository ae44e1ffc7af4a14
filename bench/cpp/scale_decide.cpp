#include "scale_decide.h"

#include <fmt/format.h>

#include <ctime>
#include <stdexcept>

#include "control/decide.h"
#include "engine/placement.h"

namespace trireme::bench {
namespace {

using namespace trireme::control;

constexpr int kReports = 10;  // of each worker

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Feeds decide() the events of a run and does nothing of what it decides.
class Run {
 public:
  explicit Run(int workers) : workers_(workers) {
    rules_.num_workers = workers;
    rules_.max_failures = 1;
    rules_.warm_restart = true;
  }

  double start(std::vector<engine::Slot> slots) {
    const double began = cpu_seconds();
    tell(Begin{});
    tell(GangReserved{std::move(slots), 0});
    tell(StorageSettled{0});
    for (int rank = 0; rank < workers_; ++rank) tell(ProcessStarted{rank, rank + 1, true});
    for (int rank = 0; rank < workers_; ++rank) tell(Connected{rank, rank + 1, "host"});
    for (int rank = 0; rank < workers_; ++rank) tell(FunctionEntered{rank});
    return done(Phase::kRunning, began);
  }

  double report() {
    const double began = cpu_seconds();
    for (int index = 0; index < kReports; ++index) {
      for (int rank = 0; rank < workers_; ++rank) tell(Reported{rank, index, {{"loss", 0.25}}, std::nullopt});
    }
    return done(Phase::kRunning, began) / kReports / workers_ * 1e6;
  }

  // The last rank: a search from the first one passes all others.
  double restart() {
    const double began = cpu_seconds();
    const int victim = workers_ - 1;
    tell(ProcessExited{victim, {.kind = engine::ExitStatus::Kind::kSignal, .value = 9}});
    tell(ConnectionLost{victim, "closed by the peer"});
    tell(TimerFired{Timer::kCause});
    for (int rank = 0; rank < victim; ++rank) tell(BecameReady{rank});
    tell(StorageSettled{1});
    tell(ProcessStarted{victim, workers_ + 1, true});
    tell(Connected{victim, workers_ + 1, "host"});
    for (int rank = 0; rank < workers_; ++rank) tell(FunctionEntered{rank});
    return done(Phase::kRunning, began);
  }

  double stop() {
    const double began = cpu_seconds();
    tell(StopRequested{"measured", true});
    for (int rank = 0; rank < workers_; ++rank) {
      tell(ProcessExited{rank, {.kind = engine::ExitStatus::Kind::kSignal, .value = 9}});
      tell(ConnectionLost{rank, "closed by the peer"});
    }
    return done(Phase::kFinished, began);
  }

 private:
  void tell(Event event) { state_ = decide(std::move(state_), std::move(event), rules_).state; }

  double done(Phase expected, double began) const {
    const double spent = cpu_seconds() - began;
    if (state_.phase != expected) throw std::runtime_error(fmt::format("the run is {}", to_string(state_.phase)));
    return spent;
  }

  const int workers_;
  Rules rules_;
  RunState state_;
};

}  // namespace

DecisionCost run_decisions(int nodes, int workers_each) {
  std::vector<engine::NodeInfo> infos;
  for (int i = 0; i < nodes; ++i) {
    engine::NodeInfo info;
    info.id = info.host = fmt::format("node{}", i);
    info.total = info.available = {{"CPU", static_cast<double>(workers_each)}};
    info.cpus_declared = true;
    infos.push_back(std::move(info));
  }
  engine::GangRequest request;
  request.bundles.assign(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(workers_each), {{"CPU", 1.0}});
  DecisionCost cost;
  const double began = cpu_seconds();
  auto placement = engine::place(request, infos);
  cost.place_s = cpu_seconds() - began;
  if (!placement) throw std::runtime_error("no room for the gang");
  Run run(nodes * workers_each);
  cost.start_s = run.start(std::move(placement->slots));
  cost.us_per_report = run.report();
  cost.restart_s = run.restart();
  cost.stop_s = run.stop();
  return cost;
}

}  // namespace trireme::bench
