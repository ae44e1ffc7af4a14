// Collects the stacks of all ranks, on request or because there is no progress.

#include <algorithm>
#include <tuple>

#include "base/process_state.h"
#include "base/text.h"
#include "control/controller.h"
#include "storage/local_files.h"
#include "storage/run_names.h"

namespace trireme::control {
namespace {

// A rank answers within a few milliseconds, but may need longer if it swaps.
constexpr auto kStackTimeout = std::chrono::seconds(3);

}  // namespace

void Controller::collect_stacks(const std::string& title, StacksWritten done) {
  if (stack_round_) {  // one round serves all requests
    stack_round_->done.push_back(std::move(done));
    return;
  }
  StackRound& round = stack_round_.emplace(StackRound{});
  round.id = ++stack_rounds_;
  round.title = title;
  round.done.push_back(std::move(done));
  const auto now = clock_.now();
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    RankPlace place;
    place.rank = static_cast<int>(rank);
    place.reports = state_.commits.next_report(place.rank);
    place.silent_s = base::Seconds(now - peer.reported).count();
    place.returned = state_.workers[rank].phase == WorkerPhase::kDone;
    round.ranks.push_back(std::move(place));
    if (!peer.channel) continue;
    wire::StackRequest request;
    request.id = round.id;
    peer.channel->send(request);
    ++round.missing;
  }
  stack_timer_.expires_after(kStackTimeout);
  stack_timer_.async_wait([this](const asio::error_code& cancelled) {
    if (!cancelled) finish_stacks();
  });
}

void Controller::take(wire::Channel& channel, wire::Stack& message) {
  if (!stack_round_ || message.id != stack_round_->id) return;  // too late
  const auto rank = static_cast<std::size_t>(channel.peer().rank);
  if (rank >= stack_round_->ranks.size() || stack_round_->ranks[rank].answered) return;
  RankPlace& place = stack_round_->ranks[rank];
  place.answered = true;
  place.where = std::move(message.where);
  place.text = std::move(message.text);
  if (--stack_round_->missing == 0) finish_stacks();
}

void Controller::finish_stacks() {
  stack_timer_.cancel();
  if (!stack_round_) return;
  StackRound round = *std::exchange(stack_round_, std::nullopt);
  for (std::size_t rank = 0; rank < std::min(round.ranks.size(), state_.workers.size()); ++rank) {
    const Worker& worker = state_.workers[rank];
    if (!round.ranks[rank].answered && worker.host == host_ && worker.pid > 0) {
      round.ranks[rank].process = base::describe_process(worker.pid);
    }
  }
  const HangReport report = hang_report(std::move(round.ranks));
  const std::string folder = fmt::format("{}/{}", plan_.path, storage::kStacksFolder);
  const std::string path = fmt::format("{}/attempt_{}-{}.txt", folder, state_.attempt, round.id);
  auto written = storage::make_folder(folder);
  if (written) written = storage::write_file_atomically(path, fmt::format("{}: {}", round.title, report.text));
  if (!written) append({{"event", "warning"}, {"message", written.error().message()}});
  for (const auto& done : round.done) done(report, written ? path : "");
}

// No rank has reported for too long, or a rank that used to report has fallen behind the others.
void Controller::look_for_hang(base::MonotonicTime now) {
  if (plan_.hang_timeout_s <= 0 || hang_told_ || state_.phase != Phase::kRunning || peers_.empty()) return;
  const bool all_entered = entered_ == static_cast<int>(peers_.size());
  std::int64_t furthest = 0;
  bool someone = false;
  for (const auto& peer : peers_) {
    furthest = std::max(furthest, peer.reports);
    someone = someone || base::Seconds(now - peer.reported).count() < plan_.hang_timeout_s;
  }
  bool behind = false;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    const bool works = state_.workers[rank].phase == WorkerPhase::kRunning && peer.reports > 0;
    const bool silent = base::Seconds(now - peer.reported).count() >= plan_.hang_timeout_s;
    behind = behind || (works && silent && peer.reports < furthest);
  }
  if (!all_entered || (someone && !behind)) return;
  hang_told_ = true;
  collect_stacks("no progress", [this](const HangReport& report, const std::string& path) {
    handle(HangNoticed{likely_culprit(), report.summary, path});
  });
}

// A rank that has finished blocks no other rank; a rank that waits in a barrier is itself blocked.
int Controller::likely_culprit() const {
  auto innocence = [this](int rank) {
    const bool works = state_.workers[static_cast<std::size_t>(rank)].phase == WorkerPhase::kRunning;
    return std::tuple(!works, state_.commits.next_report(rank), collectives_.waits(rank));
  };
  int culprit = 0;
  for (int rank = 1; rank < static_cast<int>(peers_.size()); ++rank) {
    if (innocence(rank) < innocence(culprit)) culprit = rank;
  }
  return culprit;
}

}  // namespace trireme::control
