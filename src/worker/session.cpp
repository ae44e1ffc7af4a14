#include "worker/session.h"

#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <cstdio>

#include "base/dict_fields.h"
#include "base/hex.h"
#include "base/host.h"
#include "base/json.h"
#include "base/text.h"
#include "worker/check_metrics.h"

namespace trireme::worker {
namespace {

constexpr int kLostExitCode = 75;
// Time to wait for the controller's welcome, in slices: a process that is paused loses one slice, not all of them.
constexpr int kJoinSlices = 60;
constexpr auto kJoinSlice = std::chrono::milliseconds(500);

// Never destroyed: the I/O thread of a process that exits may still read it.
const base::Clock& system_clock() {
  static const base::Clock* const clock = new base::SystemClock;
  return *clock;
}

}  // namespace

Result<Ticket> parse_ticket(const std::string& json) {
  TRIREME_ASSIGN(auto dict, base::parse_json_dict(json), "the ticket");
  TRIREME_ASSIGN(auto connection, wire::parse_ticket(dict));
  Ticket ticket{std::move(connection)};
  TRIREME_ASSIGN(ticket.rank, wire::number_in_ticket(dict, "rank"));
  TRIREME_ASSIGN(ticket.attempt, wire::number_in_ticket(dict, "attempt"));
  ticket.host = base::text_of(dict, "host");
  ticket.memory_address = base::text_of(dict, "memory_address");
  ticket.memory_secret = base::from_hex(base::text_of(dict, "memory_secret")).value_or("");
  ticket.driver = static_cast<int>(base::int_of(dict, "driver"));
  return ticket;
}

Dict to_dict(const PreemptionInfo& info) {
  return {{"nodes", info.nodes}, {"deadline", info.deadline}, {"why", info.why}};
}

void Session::exit_process(const std::string& why) {
  std::fprintf(stderr, "trireme: lost the connection to the controller (%s); this worker exits\n", why.c_str());
  std::fflush(stderr);
  ::_exit(kLostExitCode);
}

Session::Session(Ticket ticket, LostHandler lost, const base::Clock& clock)
    : pid_(::getpid()), ticket_(std::move(ticket)), lost_(std::move(lost)), clock_(clock) {}

bool Session::forked() const { return ::getpid() != pid_; }

Result<std::unique_ptr<Session>> Session::join(const Ticket& ticket, LostHandler lost) {
  return join(ticket, std::move(lost), system_clock());
}

Result<std::unique_ptr<Session>> Session::join(const Ticket& ticket, LostHandler lost, const base::Clock& clock) {
  std::unique_ptr<Session> session(new Session(ticket, std::move(lost), clock));
  TRIREME_TRY(session->connect(), "rank {}", ticket.rank);
  return session;
}

Session::~Session() {
  {
    std::shared_ptr<CheckpointWriter> writer;  // the I/O thread no longer sees the writer, and sends what it finishes
    {
      std::lock_guard lock(mutex_);
      writer = std::move(writer_);
    }
  }
  if (cancel_thread_.joinable()) cancel_thread_.join();
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    leaving_ = true;
    channel_->close();
    io_.stop();
  });
  thread_.join();
}

Result<void> Session::connect() {
  wire::Hello hello;
  hello.run_id = ticket_.run_id;
  hello.key_name = ticket_.key_name;
  hello.rank = ticket_.rank;
  hello.attempt = ticket_.attempt;
  hello.pid = ::getpid();
  hello.host = ticket_.host.empty() ? base::host_name() : ticket_.host;
  std::optional<Result<wire::Joined>> joined;
  auto join_once = [&]() -> asio::awaitable<void> {
    joined = co_await wire::join(io_, ticket_.address, ticket_.key, hello);
  };
  asio::co_spawn(io_, join_once(), asio::detached);
  for (int slice = 0; !joined && slice < kJoinSlices; ++slice) {
    io_.run_for(kJoinSlice);
    io_.restart();
  }
  if (!joined) {
    return base::error("no answer from {} within {:.0f} s", ticket_.address.text(),
                       base::Seconds(kJoinSlices * kJoinSlice).count());
  }
  if (!*joined) return std::move(*joined).error();
  channel_ = (*joined)->channel;
  heartbeat_s_ = (*joined)->welcome.heartbeat_s;
  lease_s_ = (*joined)->welcome.lease_s;
  heard_ = clock_.now();
  beat_watch_.emplace(base::Seconds(heartbeat_s_), heard_);
  asio::co_spawn(io_, read_loop(), asio::detached);
  beat();
  thread_ = std::jthread([this] {
    auto work = asio::make_work_guard(io_);
    io_.run();
  });
  return {};
}

asio::awaitable<void> Session::read_loop() {
  while (true) {
    auto message = co_await channel_->read_message();
    if (!message) {
      if (!leaving_) lose(message.error().message());
      co_return;
    }
    heard_ = clock_.now();
    receive(*std::move(message));
  }
}

void Session::beat() {
  heartbeat_.expires_after(base::nanoseconds(base::Seconds(heartbeat_s_)));
  heartbeat_.async_wait([this](const asio::error_code& cancelled) {
    if (cancelled || leaving_) return;
    const auto now = clock_.now();
    // After a pause, the controller's answers may still be in flight, or the controller was paused too.
    if (beat_watch_->late(now).count() > 0) heard_ = now;
    const double silent = base::Seconds(now - heard_).count();
    if (silent > lease_s_) return lose(fmt::format("no message for {:.0f} s", silent));
    wire::Heartbeat heartbeat;
    heartbeat.sequence = ++beats_;
    channel_->send(heartbeat);
    beat();
  });
}

void Session::lose(const std::string& why) {
  leaving_ = true;
  channel_->close();
  {
    std::lock_guard lock(mutex_);
    lost_why_ = why.empty() ? "closed" : why;
    for (auto& [id, request] : requests_)
      request.answer.set_value(base::error("lost the connection to the controller: {}", why));
    requests_.clear();
    changed_.notify_all();
    // After the goodbye the controller may close the connection first; that is not a loss.
    if (goodbye_) return;
  }
  lost_(why);
}

void Session::receive(wire::Message message) {
  std::lock_guard lock(mutex_);
  if (auto* start = std::get_if<wire::Start>(&message)) {
    pending_start_ = std::move(*start);
  } else if (auto* ack = std::get_if<wire::Ack>(&message)) {
    acked_ = ack->through;
  } else if (auto* reply = std::get_if<wire::Reply>(&message)) {
    auto request = requests_.extract(reply->id);
    if (request.empty()) return;  // it timed out in the meantime
    if (reply->failure) {
      request.mapped().answer.set_value(base::Error(*std::move(reply->failure)));
    } else {
      request.mapped().answer.set_value(std::move(reply->value));
    }
  } else if (std::holds_alternative<wire::Goodbye>(message)) {
    goodbye_ = true;
  } else if (auto* committed = std::get_if<wire::Committed>(&message)) {
    committed_ = std::max(committed_, committed->index);
    if (writer_) writer_->committed(committed->index);
  } else if (std::holds_alternative<wire::Stop>(message)) {
    stop_requested_ = true;
    drain();
  } else if (const auto* cancelled = std::get_if<wire::Cancel>(&message)) {
    may_decline_ = cancelled->may_decline;
    cancel();
  } else if (auto* leave = std::get_if<wire::LeaveAt>(&message)) {
    leave_at_ = leave->index;
  } else if (auto* told = std::get_if<wire::Preemption>(&message)) {
    const base::Seconds now = std::chrono::system_clock::now().time_since_epoch();
    preemption_ = {std::move(told->nodes), now.count() + told->seconds, std::move(told->why)};
  } else if (auto* request = std::get_if<wire::StackRequest>(&message)) {
    answer_stack_request(request->id);
  } else if (auto* asked = std::get_if<wire::WaitRequest>(&message)) {
    // Not under this lock: a thread that waits for it would look as if it could not make progress.
    asio::post(io_, [this, id = asked->id] { answer_wait_request(id); });
  }
  changed_.notify_all();
}

std::optional<PreemptionInfo> Session::preemption() {
  std::lock_guard lock(mutex_);
  return preemption_;
}

void Session::announce_own_preemption(const std::string& why) {
  wire::PreemptionNotice notice;
  notice.why = base::shortened(why, kLongestText);
  tell(notice);
}

// Under the mutex.
std::string Session::closed() const {
  if (!lost_why_.empty()) return "lost the connection to the controller: " + lost_why_;
  // Between attempts, the caller is a thread that the function left behind.
  return cancelled_ || ready_ ? kCancelled : "";
}

Result<void> Session::post(const wire::Message& message) {
  std::string payload = wire::encode(message);
  if (payload.size() > wire::kWorkerFrameLimit) {
    return base::error("a message of {} bytes is over the limit of {}", payload.size(), wire::kWorkerFrameLimit);
  }
  asio::post(io_, [this, payload = std::move(payload)] { channel_->send_payload(payload); });
  return {};
}

void Session::tell(const wire::Message& message) {
  const auto posted = post(message);
  TRIREME_CHECK(posted.ok(), "{}: {}", wire::name_of(message), posted.error().message());
}

Result<wire::Start> Session::wait_start() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_start_ || !lost_why_.empty(); });
  if (!pending_start_) return base::error("lost the connection to the controller: {}", lost_why_);
  wire::Start start = *std::move(pending_start_);
  pending_start_.reset();
  lock.unlock();
  TRIREME_TRY(open_files_of_driver(start), "rank {}", ticket_.rank);
  lock.lock();
  start_ = std::move(start);
  ready_ = false;
  next_report_ = acked_ = start_.next_report;
  committed_ = start_.next_report - 1;
  on_their_way_.clear();
  newest_ = {-1, {}};
  return start_;
}

void Session::entered(std::string holds) {
  wire::Entered entered;
  entered.holds = std::move(holds);
  tell(entered);
}

Result<void> Session::finish(Value value, bool pickled) {
  wire::Done done;
  if (start_.world_rank == 0) {
    done.value = std::move(value);
    done.pickled = pickled;
  }
  TRIREME_TRY(check_metric(done.value, "the return value"));
  std::string payload = wire::encode(done);
  if (payload.size() > wire::kWorkerFrameLimit) {
    return base::error("the return value has {} bytes, over the limit of {}: report a checkpoint instead",
                       payload.size(), wire::kWorkerFrameLimit);
  }
  std::shared_ptr<CheckpointWriter> writer;
  {
    std::lock_guard lock(mutex_);
    writer = writer_;
  }
  if (writer) writer->wait_idle();
  send_data_logs();
  asio::post(io_, [this, payload = std::move(payload)] { channel_->send_payload(payload); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return goodbye_ || !closed().empty(); });
  return {};
}

void Session::fail(wire::Failed failure) {
  if (!post(failure)) {
    // The pickled exception may contain large objects of the function. Type, text and traceback are sufficient.
    failure.exception.reset();
    failure.message = base::shortened(std::move(failure.message), kLongestText);
    failure.traceback = base::shortened(std::move(failure.traceback), kLongestText);
    tell(failure);
  }
  // The message may still be in our buffer, and the cause of the failure may end the process next.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < deadline) {
    std::promise<bool> sent;
    asio::post(io_, [this, &sent] { sent.set_value(!channel_->open() || channel_->unsent() == 0); });
    if (sent.get_future().get()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace trireme::worker
