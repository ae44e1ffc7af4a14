// Reports, commits, retention and validation.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "control/decider.h"

namespace trireme::control {

void Decider::on(Reported event) {
  if (!running()) return;
  if (state_.phase == Phase::kRunning) state_.stacks.reset();  // the rank has left the place where they show it
  if (event.checkpoint && state_.commits.taken(event.index)) {
    part_came_too_late(event.rank, *event.checkpoint);
    event.checkpoint.reset();  // the report still counts: the rank's next one has the next number
  }
  state_.reports.add(state_.attempt, event.index);
  state_.furthest = std::max(state_.furthest, event.index + 1);
  state_.positions.report(event.rank, event.index, event.positions);
  state_.commits.report(event.rank, event.index,
                        {event.metrics, event.checkpoint, std::move(event.validation), std::move(event.positions)});
  Dict fields{{"rank", event.rank}, {"index", event.index}};
  fields["metrics"] = std::move(event.metrics);
  if (event.checkpoint) fields["checkpoint"] = *event.checkpoint;
  if (!event.data.empty()) fields["data"] = std::move(event.data);
  record("report", std::move(fields));
  commit_what_is_ready();
  watch_silent_ranks();
}

void Decider::on(Uploaded event) {
  if (event.failure) return upload_failed(event.rank, event.index, *event.failure);
  if (!running()) return;
  state_.commits.uploaded(event.rank, event.index, std::move(event.files), event.nodes);
  commit_what_is_ready();
}

void Decider::on(CommitEnded event) {
  --state_.commits_in_flight;
  const ReadyCheckpoint& ready = event.checkpoint;
  const std::int64_t index = ready.index;
  const bool stored = !event.failure;
  if (event.failure) {
    upload_failed(0, index, *event.failure);
  } else {
    for (const auto& conflict : event.conflicts) {
      record("warning", {{"message", fmt::format("{}: ranks wrote different content to the same file ({}); the last "
                                                 "write wins. Include the rank in the file name",
                                                 ready.name, conflict)}});
    }
    if (event.in_memory) state_.collecting.insert(index);
    keep(std::move(event.checkpoint));
  }
  finish_when_done();
  if (stored) {
    saved_before_preemption(index);
    resize_at_checkpoint(index);
  }
  stop_when_drained();
  end_when_gone();
}

void Decider::on(const CheckpointStored& event) {
  if (!state_.collecting.contains(event.index)) return;  // removed, or given up, in the meantime
  record("checkpoint_stored",
         {{"index", event.index}, {"name", event.name}, {"bytes", event.bytes}, {"seconds", event.seconds}});
  collected(event.index);
}

void Decider::on(const CheckpointLost& event) {
  if (!state_.collecting.contains(event.index)) return;
  // Between attempts, SettleStorage finds out what the next one can resume from, and reports it.
  const bool between = state_.phase == Phase::kFailing || state_.phase == Phase::kReserving ||
                       state_.phase == Phase::kStarting || state_.phase == Phase::kPausing ||
                       (state_.phase == Phase::kStopping && state_.next == Next::kRestart);
  if (between && event.index + 1 == state_.commits.resume_at()) return collected(event.index);
  record("warning", {{"message", fmt::format("{} is lost: {}", event.name, event.why)}});
  forget_lost(event.name);
  collected(event.index);
}

void Decider::forget_lost(const std::string& name) {
  std::erase_if(state_.kept, [&](const KeptCheckpoint& each) { return each.name == name; });
  record("checkpoint_removed", {{"name", name}});
}

void Decider::collected(std::int64_t index) {
  state_.collecting.erase(index);
  if (!state_.collecting.empty()) return;
  if (state_.phase == Phase::kStopping) end_when_gone();
  if (state_.phase != Phase::kValidating) return;
  for (const auto& [id, gang] : state_.gangs) act(ReleaseGang{id});
  if (!validating() || state_.outcome == Outcome::kStopped) finish();
}

// The run is killed: it does not wait for copies.
void Decider::give_up_collecting() {
  std::vector<std::string> lost;
  for (const auto& kept : state_.kept) {
    if (state_.collecting.contains(kept.index)) lost.push_back(kept.name);
  }
  state_.collecting.clear();
  if (lost.empty()) return;
  record("warning", {{"message", fmt::format("{} not stored: the run was killed while nodes held {} in memory",
                                             base::join(lost, ", "), lost.size() == 1 ? "it" : "them")}});
  for (const auto& name : lost) forget_lost(name);
}

// Whether checkpoints must be copied to the storage before gangs are released.
bool Decider::must_collect() const {
  if (state_.collecting.empty()) return false;
  if (state_.next != Next::kRestart) return true;
  return rules_.agents_end_with_gang && std::any_of(state_.gangs.begin(), state_.gangs.end(), [](const auto& each) {
           return each.second.lost || each.second.leaving;
         });
}

void Decider::on(ValidationEnded event) {
  if (auto outdated = state_.outdated_validations.find(event.name); outdated != state_.outdated_validations.end()) {
    if (--outdated->second == 0) state_.outdated_validations.erase(outdated);
    return;
  }
  auto it = std::find_if(state_.kept.begin(), state_.kept.end(),
                         [&](const KeptCheckpoint& each) { return each.name == event.name && each.pending(); });
  if (it == state_.kept.end()) return;
  it->status = event.status;
  it->validation = {};
  // The metrics of the validation override the reported ones.
  for (auto& [key, value] : event.metrics) it->metrics[key] = value;
  state_.commits.validated(it->index, event.metrics);
  act(UpdateManifest{*it});
  Dict fields{{"name", it->name}, {"index", it->index}, {"status", checkpoint::to_string(it->status)}};
  if (!event.message.empty()) fields["message"] = event.message;
  fields["metrics"] = std::move(event.metrics);
  record("checkpoint_validated", std::move(fields));
  const std::int64_t index = it->index;
  remove_surplus();
  act(TellCommitted{index});
  if (state_.phase == Phase::kValidating && !validating() && state_.collecting.empty()) finish();
}

void Decider::on(const UploadsDrained& event) {
  at(event.rank).drained = true;
  stop_when_drained();
}

bool Decider::validating() const {
  return std::any_of(state_.kept.begin(), state_.kept.end(), [](const auto& each) { return each.pending(); });
}

void Decider::part_came_too_late(int rank, const std::string& name) {
  if (preempted(rank)) return;  // the rank will be lost anyway, and the attempt ends
  fail_or_warn(failure_of(rank, "exception", "LateCheckpoint",
                          fmt::format("{} was committed without rank {}: its part arrived too late", name, rank)));
}

void Decider::upload_failed(int rank, std::int64_t index, const std::string& why) {
  fail_or_warn(failure_of(rank, "exception", "UploadError",
                          fmt::format("could not store the checkpoint of report {}: {}", index, why)));
}

void Decider::keep(ReadyCheckpoint ready) {
  state_.commits.committed(ready.index, std::move(ready.positions));
  Dict fields{{"index", ready.index}, {"name", ready.name}};
  fields["metrics"] = ready.metrics;
  KeptCheckpoint kept{ready.index, ready.name,    std::move(ready.metrics), checkpoint::Status::kCommitted,
                      {},          state_.attempt};
  if (!ready.validation.is_null()) {
    kept.status = checkpoint::Status::kPendingValidation;
    kept.validation = std::move(ready.validation);
  }
  fields["status"] = checkpoint::to_string(kept.status);
  if (state_.collecting.contains(ready.index)) {
    const auto fewest = std::min_element(ready.nodes.begin(), ready.nodes.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    fields["in_memory_of_nodes"] = fewest->second;
    if (fewest->second == 1 && !std::exchange(state_.told_of_single_copy, true)) {
      record(
          "warning",
          {{"message", fmt::format("{} is in the memory of one node only, because no other node has room for a copy: "
                                   "until it is on the driver's disk, it is lost if that node fails",
                                   ready.name)}});
    }
  }
  record("checkpoint_committed", std::move(fields));
  if (kept.pending()) request_validation(kept);
  // The user has reused the name: this checkpoint has replaced the older one.
  for (const auto& each : state_.kept) {
    if (each.name == kept.name && each.pending()) ++state_.outdated_validations[each.name];
  }
  std::erase_if(state_.kept, [&](const KeptCheckpoint& each) { return each.name == kept.name; });
  const std::int64_t index = kept.index;
  const bool first = state_.kept.empty();
  state_.kept.push_back(std::move(kept));
  remove_surplus();
  act(TellCommitted{index});
  if (first) grow();
}

void Decider::request_validation(const KeptCheckpoint& kept) {
  Dict fields{{"name", kept.name}, {"index", kept.index}};
  const Dict* asked = kept.validation.get_if<Dict>();
  for (const char* key : {"fn_kwargs", "timeout_s"}) {
    const Value* value = asked ? asked->find(key) : nullptr;
    fields[key] = value ? *value : Value();
  }
  record("validation_requested", std::move(fields));
}

void Decider::remove_surplus() {
  for (const auto& gone : surplus(state_.kept, rules_.checkpoints)) {
    std::erase(state_.kept, gone);
    state_.collecting.erase(gone.index);
    act(RemoveCheckpoint{gone.name, {gone.attempt, gone.index}});
    record("checkpoint_removed", {{"name", gone.name}});
  }
}

void Decider::watch_silent_ranks() {
  if (state_.silence_timed || !state_.commits.held_up_by_silent_ranks()) return;
  state_.silence_timed = true;
  act(ArmTimer{Timer::kSilence, rules_.silent_rank_s});
}

void Decider::give_up_on_silent_ranks() {
  state_.silence_timed = false;
  // While the cause of a failure is being determined, a silent rank may be lost.
  if (!running() || state_.phase == Phase::kFailing) return;
  state_.commits.give_up_on_silent_ranks();
  commit_what_is_ready();
}

void Decider::commit_what_is_ready() {
  for (auto& ready : state_.commits.take_ready()) {
    if (!ready.missing.empty()) {
      record("warning", {{"message", fmt::format("{} is committed without rank {}, which has never reported",
                                                 ready.name, base::rank_list(ready.missing))}});
    }
    warn_of_positions(ready);
    ++state_.commits_in_flight;
    act(Commit{std::move(ready)});
  }
}

void Decider::warn_of_positions(const ReadyCheckpoint& ready) {
  const std::string difference = state_.positions.take_difference(ready.index);
  if (difference.empty() || state_.told_of_positions) return;
  state_.told_of_positions = true;
  record("warning", {{"message", fmt::format("{}: when they made this report, {}. A restart from it repeats rows or "
                                             "skips them: report on every rank, at the same point of each step",
                                             ready.name, difference)}});
}

// A checkpoint is lost if a preempted rank has not stored its part, even if all other ranks have.
void Decider::warn_of_incomplete() {
  std::map<std::string, std::vector<int>> lacking;
  for (const auto& failure : state_.failures) {
    if (failure.cause != "preemption") continue;
    for (const auto& name : state_.commits.waiting_for(failure.rank)) lacking[name].push_back(failure.rank);
  }
  for (const auto& [name, ranks] : lacking) {
    record("warning", {{"message", fmt::format("{} is not committed: rank {} was preempted before its part was stored; "
                                               "the next attempt resumes from an earlier checkpoint",
                                               name, base::rank_list(ranks))}});
  }
}

}  // namespace trireme::control
