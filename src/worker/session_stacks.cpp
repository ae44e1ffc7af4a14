#include "base/text.h"
#include "worker/busy_threads.h"
#include "worker/session.h"
#include "worker/stacks.h"

// What the controller asks about this process when a rank makes no progress.

namespace trireme::worker {
namespace {

constexpr base::Seconds kStackTimeout{0.5};

}  // namespace

// On a separate thread, because it waits for the other threads and heartbeats must continue.
void Session::answer_stack_request(std::int64_t id) {
  stacks_thread_ = std::jthread([this, id] {
    Stacks stacks = collect_stacks(kStackTimeout);
    wire::Stack answer;
    answer.id = id;
    answer.where = std::move(stacks.where);
    answer.text = base::shortened(std::move(stacks.text), kLongestText);
    tell(answer);
  });
}

Session::PendingRequests Session::pending_requests() {
  std::lock_guard lock(mutex_);
  PendingRequests pending;
  for (const auto& [id, request] : requests_) {
    pending.ids.push_back(id);
    pending.threads.insert(request.thread);
  }
  return pending;
}

void Session::answer_wait_request(std::int64_t id) {
  auto pending = pending_requests();
  wire::Waits answer;
  answer.id = id;
  answer.busy = busy_threads(pending.threads);
  // A request was answered in the meantime, so its thread continues.
  if (answer.busy.empty() && pending_requests() != pending) answer.busy.emplace_back("a thread that was answered");
  {
    // Waits that the controller ends without a request: report() waiting for room, or for the end of the attempt.
    std::lock_guard lock(mutex_);
    if (next_report_ - acked_ >= kReportWindow || leave_at_ >= 0) answer.busy.emplace_back("a thread in report()");
  }
  answer.requests = std::move(pending.ids);
  channel_->send(answer);
}

}  // namespace trireme::worker
