#include <unistd.h>

#include <asio/post.hpp>
#include <filesystem>

#include "base/dict_fields.h"
#include "base/json.h"
#include "base/log.h"
#include "control/controller.h"
#include "control/failure_policy.h"
#include "storage/local_files.h"
#include "storage/run_names.h"
#include "wire/ticket.h"

// Executes what decide() has decided, one overload per action.

namespace trireme::control {
namespace {

// A timer that fires this late shows that this process was paused.
constexpr base::Seconds kPaused{5.0};
// How often the event log is copied to remote storage during the run.
constexpr auto kMirrorPeriod = std::chrono::seconds(10);

}  // namespace

void Controller::run(const ReserveGang& action) {
  engine::GangRequest request = plan_.gang;
  request.bundles.resize(static_cast<std::size_t>(action.size));
  request.optional = action.optional;
  if (action.optional) request.trainer.clear();  // the first gang includes it
  gangs_[action.gang] = engine_.reserve(std::move(request), [this, gang = action.gang](engine::EngineEvent event) {
    asio::post(io_, [this, gang, event = std::move(event)]() mutable { engine_event(gang, std::move(event)); });
  });
}

void Controller::run(const StartProcess& action) {
  const Worker& worker = state_.workers[static_cast<std::size_t>(action.rank)];
  Dict ticket =
      wire::make_ticket(server_->address(), plan_.secret, plan_.id, wire::worker_key_name(state_.attempt, action.rank));
  ticket["rank"] = action.rank;
  ticket["attempt"] = state_.attempt;
  ticket["driver"] = ::getpid();
  auto process = plan_.make_process(action.rank, state_.attempt, worker.slot, base::to_json(ticket),
                                    log_path(plan_.path, state_.attempt, action.rank));
  process.visible_gpus = worker.visible_gpus;
  engine_.start(gang_of(action.rank), worker.seat.bundle, std::move(process));
}

void Controller::run(const SendStart& action) {
  const auto& place = places_[static_cast<std::size_t>(action.rank)];
  const Worker& worker = state_.workers[static_cast<std::size_t>(action.rank)];
  wire::Start start;
  start.world_rank = action.rank;
  start.world_size = static_cast<int>(state_.workers.size());
  start.local_rank = place.local_rank;
  start.local_world_size = place.local_world_size;
  start.node_rank = place.node_rank;
  start.num_nodes = place.num_nodes;
  start.attempt = state_.attempt;
  start.experiment_name = plan_.name;
  start.run_id = plan_.id;
  start.path = plan_.path;
  start.storage_path = plan_.storage_path;
  start.storage_uri = plan_.storage_uri;
  if (storage_server_) start.files_address = storage_server_->address().text();
  start.code = plan_.code;
  start.folder = plan_.folder;
  start.checkpoint_config = plan_.rules.checkpoints;
  if (!memory_used_) start.checkpoint_config.node_memory_gb = 0.0;
  start.payload = plan_.payload;
  start.checkpoint = checkpoint_;
  start.checkpoint_in_storage = checkpoint_in_storage_;
  start.memory = memory_.files(checkpoint_index_);
  start.gpus = worker.slot.gpus;
  start.visible_gpus = worker.visible_gpus;
  start.whole_gpus = has_whole_gpus(worker.slot);
  start.resources = worker.slot.resources;
  start.next_report = state_.commits.next_report(action.rank);
  start.metadata = plan_.metadata;
  start.positions = state_.commits.first_positions();
  start.log_path = log_path(plan_.path, state_.attempt, action.rank);
  Peer& peer = peers_[static_cast<std::size_t>(action.rank)];
  peer.reported = clock_.now();
  peer.next_report = start.next_report;
  send(action.rank, start);
}

void Controller::run(const SendGoodbye& action) { send(action.rank, wire::Goodbye{}); }

void Controller::run(const KillProcess& action) {
  engine_.kill(gang_of(action.rank), state_.workers[static_cast<std::size_t>(action.rank)].seat.bundle,
               base::Seconds(action.grace_s));
}

void Controller::run(const ReleaseGang& action) {
  auto gang = gangs_.extract(action.gang);
  if (!gang.empty()) engine_.release(gang.mapped());
}

void Controller::run(const ArmTimer& action) { arm(action.timer, action.seconds, false); }

void Controller::arm(Timer timer, double seconds, bool again) {
  auto& armed = timers_.at(timer);
  const auto generation = ++armed.generation;
  armed.timer.expires_after(base::nanoseconds(base::Seconds(seconds)));
  armed.timer.async_wait([this, &armed, generation, timer, seconds, again](const asio::error_code& cancelled) {
    if (cancelled || armed.generation != generation) return;
    // The workers were probably paused too, so the timer is armed again.
    const base::Seconds late = std::chrono::steady_clock::now() - armed.timer.expiry();
    if (late > kPaused && !again) return arm(timer, seconds, true);
    handle(TimerFired{timer});
  });
}

void Controller::run(const DisarmTimer& action) {
  auto& armed = timers_.at(action.timer);
  ++armed.generation;
  armed.timer.cancel();
}

void Controller::run(Record& action) {
  Dict event{{"event", action.event}};
  for (auto& [key, value] : action.fields) event[key] = std::move(value);
  time_restart(event);
  if (action.event == "attempt_started") attempt_began_ = clock_.now();
  if (action.event == "training_started") event["seconds"] = base::Seconds(clock_.now() - attempt_began_).count();
  if (action.event == "validation_requested") event["path"] = plan_.storage_path + "/" + event["name"].as_string();
  if (action.event == "run_finished") {
    if (auto written = metrics_->close(); !written) {
      append({{"event", "warning"}, {"message", written.error().message()}});
    }
    warn_of_metrics();
    event["seconds"] = base::Seconds(clock_.now() - run_began_).count();
    store_return_value();  // readers of the event look for it
  }
  append(std::move(event));
}

// Updates the times of a restart in progress.
void Controller::time_restart(const Dict& event) {
  const auto now = clock_.now();
  const std::string& kind = event["event"].as_string();
  if (kind == "attempt_failed" || kind == "resizing") {
    restart_times_.decided(now);
  } else if (kind == "attempt_started") {
    entered_ = 0;
    const auto kept = base::int_of(event, "kept");
    restart_times_.stopped(now, kept, base::int_of(event, "num_workers") - kept);
  } else if (kind == "training_started") {
    restart_times_.started(now);
  } else if (kind == "function_entered") {
    if (++entered_ == static_cast<int>(state_.workers.size())) restart_times_.entered(now);
  } else if (kind == "report") {
    auto told = restart_times_.reported(now);
    if (!told) return;
    Dict restarted{{"event", "restarted"}, {"attempt", state_.attempt}};
    for (auto& [key, value] : *told) restarted[key] = std::move(value);
    if (checkpoint_) restarted["checkpoint"] = checkpoint_->substr(checkpoint_->rfind('/') + 1);
    append(std::move(restarted));
  }
}

void Controller::store_return_value() const {
  const auto* pickle = state_.return_value.pickled ? state_.return_value.value.get_if<Bytes>() : nullptr;
  if (!pickle) return;
  auto written =
      storage::write_file_atomically(fmt::format("{}/{}", plan_.path, storage::kReturnValueFile), pickle->data);
  if (!written) base::log_warning("{}", written.error().message());
}

void Controller::run(RecordFailure& action) {
  Failure& failure = action.failure;
  failure.log_tail = plan_.log_tail(log_path(plan_.path, action.attempt, failure.rank));
  // The state keeps the data that the result shows.
  for (auto& kept : state_.failures) {
    if (kept.rank == failure.rank) kept.log_tail = failure.log_tail;
  }
  Dict event{{"event", "worker_failed"}, {"attempt", action.attempt}};
  for (auto& [key, value] : to_dict(failure)) event[key] = std::move(value);
  if (!action.alike.empty()) event["alike"] = List(action.alike.begin(), action.alike.end());
  if (action.same_as) event["same_as"] = *action.same_as;
  Dict unlogged;
  if (failure.exception) unlogged["exception"] = Value(*failure.exception);
  append(std::move(event), std::move(unlogged));
}

void Controller::run(Commit& action) {
  flush(false);
  auto log = log_->duplicate();
  if (!log) return ended(CommitEnded{std::move(action.checkpoint), {}, log.error().message()});
  if (!action.checkpoint.nodes.empty() || waiting_commits_ > 0) {
    return commit_from_memory(std::move(action.checkpoint), *std::move(log));
  }
  committer_->commit(std::move(action.checkpoint), state_.attempt, clock_.wall(), *std::move(log), {},
                     [this](CommitEnded end) { ended(std::move(end)); });
}

// Called on any thread.
void Controller::ended(CommitEnded end) {
  asio::post(io_, [this, end = std::move(end)]() mutable {
    if (!end.failure) {
      checkpoint_ = plan_.storage_path + "/" + end.checkpoint.name;
      checkpoint_in_storage_ = true;
      checkpoint_index_ = end.checkpoint.index;
      memory_.committed(checkpoint_index_);
      if (!end.in_memory) resume_points_.clear();
      ResumePoint point{checkpoint_, true, {}, end.checkpoint.positions, !end.in_memory};
      point.held.origin = {state_.attempt, checkpoint_index_};
      if (end.in_memory) point.held.files = files_in_memory(end.checkpoint);
      end.checkpoint.files.clear();
      resume_points_.push_back(std::move(point));
    }
    handle(std::move(end));
    free_memory();
  });
}

void Controller::run(const RemoveCheckpoint& action) {
  if (collector_) collector_->forget(action.origin);
  committer_->remove(action.name, action.origin);
}

void Controller::run(const UpdateManifest& action) { committer_->update(action.checkpoint); }

void Controller::run(const TellCommitted& action) {
  wire::Committed told;
  told.index = action.index;
  send_to_all(told);
  answer_lists();
  if (clock_.now() - mirrored_ < kMirrorPeriod) return;
  mirrored_ = clock_.now();
  committer_->mirror(false);
}

void Controller::run(const SendStop& action) {
  wire::Stop stop;
  stop.why = state_.stop_why;
  send(action.rank, stop);
}

void Controller::run(const ResetAttempt& action) {
  std::vector<Peer> peers(state_.workers.size());
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (action.taken_over[rank] < 0) continue;
    auto& channel = peers_[static_cast<std::size_t>(action.taken_over[rank])].channel;
    wire::Hello who = channel->peer();
    who.rank = static_cast<int>(rank);
    who.attempt = state_.attempt;
    channel->set_peer(std::move(who));
    peers[rank].channel = std::move(channel);
    peers[rank].heard = clock_.now();
  }
  for (auto& peer : peers_) {
    if (peer.channel) peer.channel->close();
  }
  peers_ = std::move(peers);
  hang_told_ = false;
  collective_timeout_s_ = 0.0;
  timeout_looked_.reset();
  timeout_stacks_.clear();
  set_aside_flight_records();
  wait_round_.reset();
  std::vector<engine::Slot> slots;
  for (const auto& worker : state_.workers) slots.push_back(worker.slot);
  places_ = places_of(slots);
  ranks_.clear();
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    ranks_[state_.workers[rank].seat] = static_cast<int>(rank);
  }
  store_.clear();
  list_requests_.clear();
  memory_.forget_uncommitted();
  collectives_.clear(static_cast<int>(state_.workers.size()));
  const std::string logs = std::filesystem::path(log_path(plan_.path, state_.attempt, 0)).parent_path();
  if (auto made = storage::make_folder(logs); !made) {
    // Each worker's start will fail with the name of its file.
    base::log_warning("{}", made.error().message());
  }
}

void Controller::run(const SettleStorage&) {
  const auto listed = checkpoint_in_storage_ && resume_points_.back().stored ? checkpoint_ : std::nullopt;
  committer_->settle(listed, [this, listed, attempt = state_.attempt, points = resume_points_,
                              collector = collector_](auto checkpoint) {
    std::string why;
    const std::size_t newest = collector ? newest_available(*collector, points, why) : points.size() - 1;
    const auto reached = collector ? collector->reachable() : base::Result<void>();
    const std::string unreachable = reached ? "" : reached.error().message();
    asio::post(io_, [this, listed, attempt, from = points[newest].held.origin, why, unreachable,
                     lost = newest + 1 < points.size(), checkpoint = std::move(checkpoint)] {
      StorageSettled event{attempt};
      if (!checkpoint) event.failure = checkpoint.error().message();
      // Unless a commit that was in progress has set a newer one.
      if (checkpoint && listed && checkpoint_ == listed) checkpoint_ = *checkpoint;
      use_memory(unreachable);
      if (lost && attempt == state_.attempt) event.earlier = resume_earlier(from, why);
      handle(std::move(event));
    });
  });
}

void Controller::run(const SendCancel& action) {
  wire::Cancel cancel;
  cancel.why = action.why;
  cancel.may_decline = action.may_decline;
  send(action.rank, cancel);
}

void Controller::run(const SendLeaveAt& action) {
  wire::LeaveAt leave;
  leave.index = action.index;
  send(action.rank, leave);
}

void Controller::run(const SendPreemption& action) {
  wire::Preemption told;
  for (int rank : action.ranks) {
    Value& on_host = told.nodes[state_.workers[static_cast<std::size_t>(rank)].host];
    List ranks = on_host.is_null() ? List() : on_host.as_list();
    ranks.push_back(rank);
    on_host = std::move(ranks);
  }
  told.seconds = action.seconds;
  told.why = action.why;
  send_to_all(told);
}

void Controller::run(const Finish&) {
  flush(true);
  // The run was killed before newer ones were stored.
  while (resume_points_.size() > 1 && !resume_points_.back().stored) {
    const auto lost = resume_points_.back().held.origin.index;
    std::erase_if(state_.kept, [&](const KeptCheckpoint& each) { return each.index == lost; });
    resume_earlier(resume_points_[resume_points_.size() - 2].held.origin, "");
  }
  for (const auto& [gang, id] : gangs_) engine_.release(id);
  gangs_.clear();
  collector_.reset();
  committer_->end_reuse();
  committer_->mirror(true);
  committer_.reset();  // finishes its jobs; their results are no longer needed
  server_->close();
  tick_timer_.cancel();
  stack_timer_.cancel();
  flush_timer_.cancel();
  {
    std::lock_guard lock(end_mutex_);
    end_.outcome = state_.outcome;
    end_.error = state_.error;
    end_.note = state_.note;
    if (state_.outcome != Outcome::kFinished) end_.failures = state_.failures;
    end_.return_value = state_.return_value;
    end_.metrics = state_.commits.last_metrics();
    end_.checkpoint = checkpoint_;
    end_.checkpoint_in_storage = checkpoint_in_storage_;
    end_.checkpoints = ranked(state_.kept, plan_.rules.checkpoints);
    end_.seconds = base::Seconds(clock_.now() - run_began_).count();
    end_.attempts = state_.attempt - state_.first_attempt + 1;
    end_.last_attempt = state_.attempt;
    end_.reports = state_.reports.count();
    finished_ = true;
    end_changed_.notify_all();
  }
  io_.stop();
}

}  // namespace trireme::control
