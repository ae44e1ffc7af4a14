#include "control/controller.h"

#include <unistd.h>

#include <asio/post.hpp>
#include <filesystem>

#include "base/hex.h"
#include "base/json.h"
#include "base/log.h"
#include "base/process_state.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "control/event_fields.h"
#include "control/failure_policy.h"
#include "control/ranks.h"
#include "storage/disk_error.h"
#include "storage/local_files.h"
#include "storage/retry.h"
#include "storage/run_names.h"

namespace trireme::control {
namespace {

// Reports are written within this time. More important events are written immediately.
constexpr auto kFlushDelay = std::chrono::milliseconds(50);
// How many times longer a process may be silent if the kernel shows that it is neither stopped nor dead.
constexpr double kStarved = 5.0;
// A timer that fires this late shows that this process was paused.
constexpr base::Seconds kPaused{5.0};
constexpr auto kStallWarning = std::chrono::seconds(30);
// How often the event log is copied to remote storage during the run.
constexpr auto kMirrorPeriod = std::chrono::seconds(10);

asio::steady_timer::duration to_duration(double seconds) {
  return std::chrono::duration_cast<asio::steady_timer::duration>(base::Seconds(seconds));
}

}  // namespace

std::string log_path(const std::string& run_path, int attempt, int rank) {
  return fmt::format("{}/logs/attempt_{}/rank_{}.log", run_path, attempt, rank);
}

Controller::Controller(RunPlan plan, engine::Engine& engine, const base::Clock& clock, EventSink sink)
    : plan_(std::move(plan)), engine_(engine), clock_(clock), sink_(std::move(sink)), checkpoint_(plan_.checkpoint) {
  state_.commits = CommitBook(0, plan_.first_report, plan_.positions);
  if (plan_.last_metrics) state_.commits.set_last_metrics(*plan_.last_metrics);
  state_.reports = plan_.reports;
  state_.first_attempt = state_.attempt = plan_.first_attempt;
  state_.kept = plan_.kept;
  checkpoint_in_storage_ = plan_.checkpoint_in_storage;
  for (Timer timer : {Timer::kStart, Timer::kCause, Timer::kStop, Timer::kAbort, Timer::kSilence, Timer::kPause,
                      Timer::kResize, Timer::kPreempt}) {
    timers_.emplace(timer, ArmedTimer{asio::steady_timer(io_)});
  }
}

Controller::~Controller() {
  if (!thread_.joinable()) return;
  stop("the run was abandoned", true);
  thread_.join();
  metrics_.reset();
  committer_.reset();
}

base::Result<void> Controller::start() {
  TRIREME_ASSIGN(auto log, EventLog::open(fmt::format("{}/{}", plan_.path, storage::kEventsFile)));
  log_.emplace(std::move(log));
  TRIREME_ASSIGN(server_, wire::Server::listen(io_, plan_.listen, plan_.secret, *this));
  metrics_.emplace(plan_.path, [this](std::string message) {
    {
      std::lock_guard lock(metrics_mutex_);
      metrics_warning_ = std::move(message);
    }
    asio::post(io_, [this] { warn_of_metrics(); });
  });
  auto files = plan_.files;
  if (plan_.permit) {
    files = files->with_policy([this](storage::RetryPolicy& policy) { policy.permit = plan_.permit; });
  }
  committer_.emplace(Committer::Place{std::move(files), plan_.storage_path, plan_.path},
                     [this](std::string message) { warn(std::move(message)); });
  run_began_ = attempt_began_ = mirrored_ = clock_.now();
  asio::post(io_, [this] {
    Dict event{{"event", "run_started"}, {"name", plan_.name}, {"id", plan_.id}, {"path", plan_.path}};
    for (auto& [key, value] : plan_.started) event[key] = value;
    append(std::move(event));
    for (const auto& warning : plan_.warnings) append({{"event", "warning"}, {"message", warning}});
    tick();
    committer_->mirror(false);
    handle(Begin{});
  });
  thread_ = std::jthread([this] { loop(); });
  return {};
}

void Controller::stop(std::string why, bool hard) {
  asio::post(io_, [this, why = std::move(why), hard] { handle(StopRequested{why, hard}); });
}

void Controller::warn(std::string message) {
  asio::post(io_, [this, message = std::move(message)] { append({{"event", "warning"}, {"message", message}}); });
}

void Controller::announce_preemption(PreemptionAnnounced announced) {
  asio::post(io_, [this, announced = std::move(announced)] { handle(announced); });
}

void Controller::finish_validation(ValidationEnded ended) {
  asio::post(io_, [this, ended = std::move(ended)] { handle(ended); });
}

RunEnd Controller::wait() {
  std::unique_lock lock(end_mutex_);
  end_changed_.wait(lock, [&] { return finished_.load(); });
  return end_;
}

// Catches exceptions: one that is thrown here is a bug, and the user's run must still end with a result.
void Controller::loop() {
  try {
    auto work = asio::make_work_guard(io_);
    io_.run();
  } catch (const std::exception& broken) {
    for (const auto& [gang, id] : gangs_) engine_.release(id);
    std::lock_guard lock(end_mutex_);
    end_.outcome = Outcome::kFailed;
    end_.error = fmt::format("internal error in the controller: {}", broken.what());
    base::log_error("{}", end_.error);
    finished_ = true;
    end_changed_.notify_all();
  }
}

void Controller::handle(Event event) {
  const Phase before = state_.phase;
  auto decision = decide(std::move(state_), std::move(event), plan_.rules);
  state_ = std::move(decision.state);
  if (state_.phase == Phase::kFailing && before != Phase::kFailing) {
    restart_times_.noticed(clock_.now(), std::exchange(silence_s_, 0.0));
  }
  for (auto& action : decision.actions) execute(std::move(action));
}

void Controller::execute(Action action) {
  std::visit([this](auto& held) { run(held); }, action);
}

void Controller::run(const ReserveGang& action) {
  engine::GangRequest request = plan_.gang;
  request.bundles.resize(static_cast<std::size_t>(action.size));
  request.optional = action.optional;
  if (action.optional) request.trainer.clear();  // the first gang includes it
  gangs_[action.gang] = engine_.reserve(std::move(request), [this, gang = action.gang](engine::EngineEvent event) {
    asio::post(io_, [this, gang, event = std::move(event)]() mutable { engine_event(gang, std::move(event)); });
  });
}

int Controller::rank_at(Seat seat) const {
  for (std::size_t rank = 0; rank < state_.workers.size(); ++rank) {
    if (state_.workers[rank].seat == seat) return static_cast<int>(rank);
  }
  return -1;
}

const engine::GangId& Controller::gang_of(int rank) const {
  return gangs_.at(state_.workers[static_cast<std::size_t>(rank)].seat.gang);
}

void Controller::engine_event(int gang, engine::EngineEvent event) {
  if (!gangs_.contains(gang)) return;  // already released
  if (auto* reserved = std::get_if<engine::Reserved>(&event)) {
    handle(GangReserved{std::move(reserved->slots), gang});
  } else if (auto* failed = std::get_if<engine::ReserveFailed>(&event)) {
    handle(ReservationFailed{failed->error.message(), gang});
  } else if (auto* waiting = std::get_if<engine::ReserveWaiting>(&event)) {
    append({{"event", "warning"}, {"message", waiting->why}});
  } else if (auto* started = std::get_if<engine::Started>(&event)) {
    if (int rank = rank_at({gang, started->bundle}); rank >= 0) {
      handle(ProcessStarted{rank, started->pid, started->forked});
    }
  } else if (auto* refused = std::get_if<engine::StartFailed>(&event)) {
    if (int rank = rank_at({gang, refused->bundle}); rank >= 0) {
      handle(ProcessStartFailed{rank, refused->error.message()});
    }
  } else if (auto* exited = std::get_if<engine::Exited>(&event)) {
    if (int rank = rank_at({gang, exited->bundle}); rank >= 0) {
      const std::string log = log_path(plan_.path, state_.attempt, rank);
      handle(ProcessExited{rank, exited->status, std::move(exited->out_of_memory),
                           storage::no_space_for(log) ? log : "", watchdog_of(rank, exited->status, log)});
    }
  } else if (auto* reclaim = std::get_if<engine::Reclaim>(&event)) {
    std::optional<double> seconds;
    if (reclaim->seconds) seconds = reclaim->seconds->count();
    handle(GangReclaimed{gang, std::move(reclaim->why), seconds});
  } else if (std::holds_alternative<engine::RoomGrew>(event)) {
    handle(RoomGrew{});
  }
}

void Controller::run(const StartProcess& action) {
  const Worker& worker = state_.workers[static_cast<std::size_t>(action.rank)];
  Dict ticket{{"address", server_->address().text()},
              {"secret", base::to_hex(plan_.secret)},
              {"run_id", plan_.id},
              {"rank", action.rank},
              {"attempt", state_.attempt},
              {"driver", ::getpid()}};
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
  start.checkpoint_config = plan_.rules.checkpoints;
  start.payload = plan_.payload;
  start.checkpoint = checkpoint_;
  start.checkpoint_in_storage = checkpoint_in_storage_;
  start.memory = memory_.files(checkpoint_index_);
  start.gpus = worker.slot.gpus;
  start.visible_gpus = worker.visible_gpus;
  start.resources = worker.slot.resources;
  start.hosts = nodes_;
  start.next_report = state_.commits.next_report(action.rank);
  start.metadata = plan_.metadata;
  start.positions = state_.commits.first_positions();
  start.log_path = log_path(plan_.path, state_.attempt, action.rank);
  Peer& peer = peers_[static_cast<std::size_t>(action.rank)];
  peer.reported = clock_.now();
  peer.next_report = start.next_report;
  send(action.rank, start);
}

void Controller::send(int rank, const wire::Message& message) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.channel) peer.channel->send(message);
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
  armed.timer.expires_after(to_duration(seconds));
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
    const auto kept = int_of(event, "kept");
    restart_times_.stopped(now, kept, int_of(event, "num_workers") - kept);
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
  append(std::move(event));
}

void Controller::run(Commit& action) {
  flush(false);
  auto log = log_->duplicate();
  auto ended = [this](CommitEnded end) {
    asio::post(io_, [this, end = std::move(end)]() mutable {
      if (!end.failure) {
        checkpoint_ = plan_.storage_path + "/" + end.checkpoint.name;
        checkpoint_in_storage_ = true;
        checkpoint_index_ = end.checkpoint.index;
        memory_.committed(checkpoint_index_);
      }
      handle(std::move(end));
    });
  };
  if (!log) return ended(CommitEnded{std::move(action.checkpoint), {}, log.error().message()});
  committer_->commit(std::move(action.checkpoint), state_.attempt, clock_.wall(), *std::move(log), std::move(ended));
}

void Controller::run(const RemoveCheckpoint& action) { committer_->remove(action.name, action.origin); }

void Controller::run(const UpdateManifest& action) { committer_->update(action.checkpoint); }

void Controller::run(const TellCommitted& action) {
  wire::Committed told;
  told.index = action.index;
  for (auto& peer : peers_) {
    if (peer.channel) peer.channel->send(told);
  }
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
  nodes_.clear();
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (places_[rank].local_rank == 0) nodes_.push_back(slots[rank].host);
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
  committer_->settle([this, attempt = state_.attempt](const base::Result<void>& settled) {
    StorageSettled event{attempt};
    if (!settled) event.failure = settled.error().message();
    asio::post(io_, [this, event = std::move(event)] { handle(event); });
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
  for (auto& peer : peers_) {
    if (peer.channel) peer.channel->send(told);
  }
}

void Controller::run(const Finish&) {
  flush(true);
  committer_->forget_dropped();
  committer_->mirror(true);
  committer_.reset();  // finishes its jobs; their results are no longer needed
  for (const auto& [gang, id] : gangs_) engine_.release(id);
  gangs_.clear();
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

void Controller::append(Dict event) {
  Dict timed{{"time", clock_.wall()}};
  for (auto& [key, value] : event) timed[key] = std::move(value);
  log_->append(timed);
  sink_(timed);
  if (timed["event"].as_string() == "report") {
    if (int_of(timed, "rank") == 0) metrics_->append(timed);
    flush_soon();
  } else {
    flush(false);
  }
}

void Controller::warn_of_metrics() {
  std::optional<std::string> message;
  {
    std::lock_guard lock(metrics_mutex_);
    message = std::exchange(metrics_warning_, std::nullopt);
  }
  if (message) append({{"event", "warning"}, {"message", *message}});
}

void Controller::flush_soon() {
  if (flush_pending_) return;
  flush_pending_ = true;
  flush_timer_.expires_after(kFlushDelay);
  flush_timer_.async_wait([this](const asio::error_code& cancelled) {
    if (cancelled) return;
    flush_pending_ = false;
    flush(false);
  });
}

void Controller::flush(bool to_disk) {
  auto flushed = to_disk ? log_->sync() : log_->flush();
  metrics_->flush();
  if (flushed || state_.phase == Phase::kFinished) return;
  // Continuing would lose events. Posted, because this may be in the middle of a decision.
  asio::post(io_, [this, why = flushed.error().message()] { handle(StopRequested{why, false}); });
}

void Controller::tick() {
  tick_timer_.expires_after(to_duration(plan_.heartbeat_s));
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
  return worker.host == host_ && worker.pid > 0 && base::may_run(worker.pid);
}

// ": it is stopped (by a signal)", if the process is visible from here.
std::string Controller::state_of(std::size_t rank) const {
  const Worker& worker = state_.workers[rank];
  if (worker.host != host_ || worker.pid <= 0) return "";
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
