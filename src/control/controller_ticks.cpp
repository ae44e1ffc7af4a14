#include "base/process_state.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "control/controller.h"

// What the controller looks at in every heartbeat period: silent ranks and checkpoints that are not completed.

namespace trireme::control {
namespace {

// How many times longer a process may be silent if the kernel shows that it is neither stopped nor dead.
constexpr double kStarved = 5.0;
constexpr auto kStallWarning = std::chrono::seconds(30);

}  // namespace

void Controller::tick() {
  tick_timer_.expires_after(base::nanoseconds(base::Seconds(plan_.heartbeat_s)));
  tick_timer_.async_wait([this](const asio::error_code& cancelled) {
    if (cancelled) return;
    const auto now = clock_.now();
    forgive(now, tick_watch_.late(now));
    check_heartbeats(now);
    warn_of_stall(now);
    look_for_hang(now);
    look_for_timeout(now);
    look_for_deadlock();
    tick();
  });
}

// If this thread was delayed, the workers probably were too: silence during this time does not count.
void Controller::forgive(base::MonotonicTime now, base::MonotonicTime::duration late) {
  if (late.count() == 0) return;
  stalled_since_ += late;
  for (auto& peer : peers_) {
    peer.heard = now;
    peer.reported = std::min(now, peer.reported + late);
  }
}

void Controller::check_heartbeats(base::MonotonicTime now) {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.channel) continue;
    double silent = base::Seconds(now - peer.heard).count();
    if (silent < plan_.heartbeat_timeout_s || (silent < kStarved * plan_.heartbeat_timeout_s && may_starve(rank))) {
      continue;
    }
    auto channel = std::exchange(peer.channel, nullptr);
    channel->close();
    silence_s_ = silent;
    handle(ConnectionLost{static_cast<int>(rank), fmt::format("no heartbeat for {:.1f} s{}", silent, state_of(rank))});
  }
}

// On an overloaded machine a healthy thread may wait for seconds. A stopped process is not excused.
bool Controller::may_starve(std::size_t rank) const {
  const Worker& worker = state_.workers[rank];
  return plan_.workers_here && worker.host == host_ && worker.pid > 0 && base::may_run(worker.pid);
}

// ": it is stopped (by a signal)", if the process is visible from here.
std::string Controller::state_of(std::size_t rank) const {
  const Worker& worker = state_.workers[rank];
  if (!plan_.workers_here || worker.host != host_ || worker.pid <= 0) return "";
  return ": " + base::describe_process(worker.pid);
}

void Controller::warn_of_stall(base::MonotonicTime now) {
  const auto waiting = state_.commits.waiting();
  if (state_.phase != Phase::kRunning || waiting.empty() || waiting.begin()->first != stalled_index_) {
    stalled_index_ = waiting.empty() ? -1 : waiting.begin()->first;
    stalled_since_ = now;
    return;
  }
  if (now - stalled_since_ < kStallWarning) return;
  stalled_since_ = now;
  const auto& ranks = waiting.begin()->second;
  append({{"event", "warning"},
          {"message", fmt::format("{} waits for {}", checkpoint::default_name(stalled_index_),
                                  ranks.empty() ? "uploads" : "rank " + base::rank_list(ranks))}});
}

}  // namespace trireme::control
