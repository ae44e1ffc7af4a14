#include "control/controller.h"

#include <asio/post.hpp>

#include "base/dict_fields.h"
#include "base/log.h"
#include "storage/disk_error.h"
#include "storage/retry.h"
#include "storage/run_names.h"

namespace trireme::control {
namespace {

// Reports are written within this time. More important events are written at once.
constexpr auto kFlushDelay = std::chrono::milliseconds(50);

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
  resume_points_.push_back({plan_.checkpoint, plan_.checkpoint_in_storage, {}, plan_.positions});
  resume_points_.back().held.origin.index = plan_.first_report - 1;
  for (Timer timer : {Timer::kStart, Timer::kCause, Timer::kStop, Timer::kAbort, Timer::kSilence, Timer::kPause,
                      Timer::kResize, Timer::kPreempt}) {
    timers_.emplace(timer, ArmedTimer{asio::steady_timer(io_)});
  }
}

Controller::~Controller() {
  if (!thread_.joinable()) return;
  stop("the run was abandoned", true);
  thread_.join();
  storage_server_.reset();
  metrics_.reset();
  committer_.reset();
}

base::Result<void> Controller::start() {
  TRIREME_ASSIGN(auto log, EventLog::open(fmt::format("{}/{}", plan_.path, storage::kEventsFile)));
  log_.emplace(std::move(log));
  TRIREME_ASSIGN(server_, wire::Server::listen(io_, plan_.listen, plan_.secret, *this));
  if (!plan_.workers_here) TRIREME_TRY(start_storage_server());
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

base::Result<void> Controller::start_storage_server() {
  StorageServer::Place place{.run_id = plan_.id,
                             .folder = plan_.files->local() ? plan_.storage_path : "",
                             .readable = {},
                             .code = plan_.code,
                             .scratch = plan_.path};
  if (plan_.checkpoint && !plan_.checkpoint_in_storage) place.readable = plan_.checkpoint;
  TRIREME_ASSIGN(storage_server_, StorageServer::start(plan_.listen, plan_.secret, std::move(place)));
  if (!plan_.files->local()) return {};
  collector_ = std::make_shared<MemoryCollector>(plan_.id, plan_.path, [this] { return engine_.node_memory(); });
  plan_.rules.agents_end_with_gang = engine_.may_add_nodes();
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
  if (storage_server_) storage_server_->set_attempt(state_.attempt);
  if (state_.phase == Phase::kFailing && before != Phase::kFailing) {
    restart_times_.noticed(clock_.now(), std::exchange(silence_s_, 0.0));
  }
  for (auto& action : decision.actions) execute(std::move(action));
}

void Controller::execute(Action action) {
  std::visit([this](auto& held) { run(held); }, action);
}

int Controller::rank_at(Seat seat) const {
  const auto found = ranks_.find(seat);
  return found == ranks_.end() ? -1 : found->second;
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
      handle(ProcessStartFailed{rank, refused->error.message(), refused->node_lost});
    }
  } else if (auto* exited = std::get_if<engine::Exited>(&event)) {
    if (int rank = rank_at({gang, exited->bundle}); rank >= 0) {
      const std::string log = log_path(plan_.path, state_.attempt, rank);
      handle(ProcessExited{rank, exited->status, std::move(exited->out_of_memory),
                           storage::no_space_for(log) ? log : "", watchdog_of(rank, exited->status, log),
                           std::move(exited->node_lost)});
    }
  } else if (auto* reclaim = std::get_if<engine::Reclaim>(&event)) {
    std::optional<double> seconds;
    if (reclaim->seconds) seconds = reclaim->seconds->count();
    handle(GangReclaimed{gang, std::move(reclaim->why), seconds, std::move(reclaim->node_id), reclaim->elsewhere});
  } else if (auto* lost = std::get_if<engine::GangLost>(&event)) {
    handle(GangLost{gang, std::move(lost->why)});
  } else if (std::holds_alternative<engine::RoomGrew>(event)) {
    handle(RoomGrew{});
  }
}

void Controller::send(int rank, const wire::Message& message) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.channel) peer.channel->send(message);
}

void Controller::send_to_all(const wire::Message& message) {
  const std::string payload = wire::encode(message);
  for (auto& peer : peers_) {
    if (peer.channel) peer.channel->send_payload(payload);
  }
}

void Controller::append(Dict event, Dict unlogged) {
  Dict timed{{"time", clock_.wall()}};
  for (auto& [key, value] : event) timed[key] = std::move(value);
  log_->append(timed);
  for (auto& [key, value] : unlogged) timed[key] = std::move(value);
  sink_(timed);
  if (timed["event"].as_string() == "report") {
    if (base::int_of(timed, "rank") == 0) metrics_->append(timed);
    flush_soon();
  } else {
    flush_after_this_turn();
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

// One write for what the handlers that are ready now record: the start of a gang has three events for each worker.
void Controller::flush_after_this_turn() {
  if (std::exchange(flush_posted_, true)) return;
  asio::post(io_, [this] {
    flush_posted_ = false;
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

}  // namespace trireme::control
