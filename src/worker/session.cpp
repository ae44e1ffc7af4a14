#include "worker/session.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <cstdio>

#include "base/hex.h"
#include "base/host.h"
#include "base/json.h"
#include "checkpoint/commit.h"
#include "storage/open_files.h"
#include "worker/busy_threads.h"
#include "worker/stacks.h"

namespace trireme::worker {
namespace {

// Reports in flight: enough to never wait in practice, few enough to bound memory.
constexpr std::int64_t kReportWindow = 4096;
constexpr int kLostExitCode = 75;
// A function may miss an interrupt, in a destructor or in the middle of an except clause, so it is repeated.
constexpr auto kInterruptPeriod = std::chrono::milliseconds(100);
constexpr base::Seconds kStackTimeout{0.5};
constexpr const char* kCancelled = "this attempt is over";
// Time to wait for the controller's welcome, in slices: a process that is paused loses one slice, not all of them.
constexpr int kJoinSlices = 60;
constexpr auto kJoinSlice = std::chrono::milliseconds(500);

// Never destroyed: the I/O thread of a process that exits may still read it.
const base::Clock& system_clock() {
  static const base::Clock* const clock = new base::SystemClock;
  return *clock;
}

Result<void> check_metrics(const Dict& metrics, const std::string& where);

// Tensors must be stored in a checkpoint.
Result<void> check_metric(const Value& value, const std::string& where) {
  if (const Tensor* tensor = value.get_if<Tensor>()) {
    return base::error("{} is a tensor, {}: report numbers, and put tensors into a checkpoint", where,
                       tensor->describe());
  }
  if (const Dict* dict = value.get_if<Dict>()) return check_metrics(*dict, where);
  if (const List* list = value.get_if<List>()) {
    for (std::size_t i = 0; i < list->size(); ++i)
      TRIREME_TRY(check_metric((*list)[i], fmt::format("{}[{}]", where, i)));
  }
  return {};
}

Result<void> check_metrics(const Dict& metrics, const std::string& where) {
  for (const auto& [key, value] : metrics) {
    // Most metrics are numbers: skip the text for those.
    if (!value.is_number()) TRIREME_TRY(check_metric(value, fmt::format("{}['{}']", where, key)));
  }
  return {};
}

// Truncated to a size that a message can hold.
std::string shortened(std::string text) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  if (text.size() <= kLongest) return text;
  const std::string end = fmt::format("\n... and {} bytes more", text.size() - kLongest);
  std::size_t length = kLongest;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;  // inside of a character
  text.resize(length);
  return text + end;
}

}  // namespace

Result<Ticket> parse_ticket(const std::string& json) {
  TRIREME_ASSIGN(auto dict, base::parse_json_dict(json), "the ticket");
  for (const char* key : {"address", "secret", "run_id", "rank", "attempt"}) {
    if (!dict.contains(key)) return base::error("the ticket has no '{}'", key);
  }
  Ticket ticket;
  TRIREME_ASSIGN(ticket.address, wire::parse_address(dict["address"].as_string()));
  auto secret = base::from_hex(dict["secret"].as_string());
  if (!secret) return base::error("the ticket's secret is not hex");
  ticket.secret = *std::move(secret);
  ticket.run_id = dict["run_id"].as_string();
  ticket.rank = static_cast<int>(dict["rank"].as_int());
  ticket.attempt = static_cast<int>(dict["attempt"].as_int());
  if (dict.contains("driver")) ticket.driver = static_cast<int>(dict["driver"].as_int());
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
  hello.rank = ticket_.rank;
  hello.attempt = ticket_.attempt;
  hello.pid = ::getpid();
  hello.host = base::host_name();
  std::optional<Result<wire::Joined>> joined;
  auto join_once = [&]() -> asio::awaitable<void> {
    joined = co_await wire::join(io_, ticket_.address, ticket_.secret, hello);
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
  heartbeat_.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(base::Seconds(heartbeat_s_)));
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

// Under the mutex, on the I/O thread.
void Session::cancel() {
  if (ready_) {  // it has not received a function yet: nothing to leave
    pending_start_.reset();
    return tell(wire::Ready{});
  }
  if (cancelled_) return;
  cancelled_ = true;
  for (auto& [id, request] : requests_) request.answer.set_value(base::error("{}", kCancelled));
  requests_.clear();
  abort_collectives();
  asio::post(io_, [this] { interrupt(); });
}

// Under the mutex. On a separate thread: NCCL's abort may take seconds, or never return, and heartbeats must continue.
void Session::abort_collectives() {
  // Not posted, on the I/O thread: the user's thread could post Ready before it.
  if (!on_cancel_) return channel_->send(wire::Aborted{});
  aborting_ = true;
  cancel_thread_ = std::jthread([this, on_cancel = on_cancel_] {
    try {
      on_cancel();
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "trireme: the collectives could not be aborted: %s\n", thrown.what());
    } catch (...) {
      std::fprintf(stderr,
                   "trireme: the collectives could not be aborted: an exception that is not a std::exception\n");
    }
    tell(wire::Aborted{});
    std::lock_guard lock(mutex_);
    aborting_ = false;
    changed_.notify_all();
  });
}

void Session::interrupt() {
  {
    std::lock_guard lock(mutex_);
    if (!cancelled_ || ready_) return;
    if (interrupt_) interrupt_();
  }
  interrupt_timer_.expires_after(kInterruptPeriod);
  interrupt_timer_.async_wait([this](const asio::error_code& cancelled) {
    if (!cancelled) interrupt();
  });
}

// On a separate thread, because it waits for the other threads and heartbeats must continue.
void Session::answer_stack_request(std::int64_t id) {
  stacks_thread_ = std::jthread([this, id] {
    Stacks stacks = collect_stacks(kStackTimeout);
    wire::Stack answer;
    answer.id = id;
    answer.where = std::move(stacks.where);
    answer.text = shortened(std::move(stacks.text));
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

void Session::set_interrupt(std::function<void()> interrupt) {
  std::lock_guard lock(mutex_);
  interrupt_ = std::move(interrupt);
}

void Session::set_on_cancel(std::function<void()> on_cancel) {
  std::lock_guard lock(mutex_);
  // The previous one is destroyed after the lock is released: it may need the GIL, whose owner may wait for the lock.
  std::swap(on_cancel_, on_cancel);
  if (cancelled_ && on_cancel_ && !cancel_thread_.joinable()) abort_collectives();
}

bool Session::wait_for_cancel() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return (cancelled_ && !aborting_) || goodbye_ || !lost_why_.empty(); });
  return cancelled_;
}

void Session::become_ready() {
  std::shared_ptr<CheckpointWriter> writer;
  {
    std::lock_guard lock(mutex_);
    writer = std::move(writer_);
  }
  if (writer) writer->wait_idle();  // parts in flight belong to the attempt that is over
  writer.reset();
  if (cancel_thread_.joinable()) cancel_thread_.join();
  set_on_cancel({});
  std::lock_guard lock(mutex_);
  cancelled_ = false;
  ready_ = true;
  leave_at_ = -1;
  next_collective_ = 0;
  preemption_.reset();
  tell(wire::Ready{});
}

std::optional<PreemptionInfo> Session::preemption() {
  std::lock_guard lock(mutex_);
  return preemption_;
}

void Session::announce_own_preemption(const std::string& why) {
  wire::PreemptionNotice notice;
  notice.why = shortened(why);
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
  start_ = *std::move(pending_start_);
  pending_start_.reset();
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

Result<std::shared_ptr<CheckpointWriter>> Session::writer() {
  std::lock_guard lock(mutex_);
  if (writer_) return writer_;
  if (!files_) {
    std::string path;
    TRIREME_ASSIGN(files_,
                   storage::open_files(start_.storage_uri.empty() ? start_.storage_path : start_.storage_uri, path));
  }
  auto done = [this](std::int64_t index, Result<CheckpointWriter::Stored> stored) {
    wire::UploadDone message;
    message.index = index;
    if (stored) {
      message.files = checkpoint::to_list(stored->files);
      message.memory = std::move(stored->memory);
    } else {
      message.failure = shortened(stored.error().message());
    }
    auto posted = post(message);
    if (posted) return;
    wire::UploadDone refused;
    refused.index = index;
    refused.failure = fmt::format("the list of its files: {}; store fewer files", posted.error().message());
    tell(refused);
  };
  writer_ = std::make_shared<CheckpointWriter>(start_, files_, std::move(done));
  return writer_;
}

// The controller requests a stop and waits until no upload is in flight. Under the mutex.
void Session::drain() {
  if (writer_) {
    writer_->when_idle([this] { tell(wire::Drained{}); });
  } else {
    tell(wire::Drained{});
  }
}

Result<std::optional<std::string>> Session::report(Metrics metrics, std::optional<CheckpointSource> checkpoint,
                                                   ReportOptions options) {
  TRIREME_TRY(check_metrics(metrics, "metrics"));
  wire::Report report;
  report.metrics = std::move(metrics);
  report.data = std::move(options.data);
  if (options.checkpoint_name) TRIREME_TRY(checkpoint::check_name(*options.checkpoint_name));
  std::shared_ptr<CheckpointWriter> writer;
  std::optional<std::string> chosen_name;
  if (checkpoint) {
    TRIREME_ASSIGN(writer, this->writer());
    // Validate before the report counts.
    TRIREME_ASSIGN(chosen_name, writer->name_for(*checkpoint, options.checkpoint_name));
    report.validation = std::move(options.validation);
    report.positions = std::move(options.positions);
  }
  std::int64_t index = 0;
  std::string name;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_report_ - acked_ < kReportWindow || !closed().empty(); });
    if (const auto why = closed(); !why.empty()) return base::error("{}", why);
    // A thread that the function of an earlier attempt left behind; the next attempt has not started.
    if (ready_) return base::error("{}", kCancelled);
    index = report.index = next_report_;
    if (checkpoint) report.checkpoint = name = chosen_name.value_or(checkpoint::default_name(index));
    // Under the lock that assigned the number: reports of several threads are sent in the order of their numbers, and
    // the controller accepts no other order.
    TRIREME_TRY(post(std::move(report)), "the report");
    ++next_report_;  // a report that is too large does not count
  }
  if (!checkpoint) return std::optional<std::string>();
  const CheckpointUploadMode mode = checkpoint->mode;
  TRIREME_TRY(writer->store(index, name, *std::move(checkpoint)), "{} could not be stored", name);
  const std::string folder = start_.storage_path + "/" + name;
  remember(index, folder, mode);
  TRIREME_TRY(leave_with(index, *writer));
  return std::optional(folder);
}

void Session::remember(std::int64_t index, const std::string& folder, CheckpointUploadMode mode) {
  std::lock_guard lock(mutex_);
  if (mode == CheckpointUploadMode::kAsync) {
    on_their_way_[index] = folder;
  } else if (index > newest_.first) {
    newest_ = {index, folder};
  }
}

std::optional<std::string> Session::newest_checkpoint() {
  // A forked child has no other thread, and the lock may have been held when it was forked.
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!forked()) lock.lock();
  // Commits arrive in the order of the reports.
  const auto first_uncommitted = on_their_way_.upper_bound(committed_);
  if (first_uncommitted != on_their_way_.begin()) {
    const auto& [index, folder] = *std::prev(first_uncommitted);
    if (index > newest_.first) newest_ = {index, folder};
    on_their_way_.erase(on_their_way_.begin(), first_uncommitted);
  }
  if (newest_.first < 0) return std::nullopt;
  return newest_.second;
}

// The gang is resized with this checkpoint: later work would be discarded.
Result<void> Session::leave_with(std::int64_t index, CheckpointWriter& writer) {
  {
    std::lock_guard lock(mutex_);
    if (leave_at_ < 0 || index < leave_at_) return {};
  }
  writer.wait_idle();
  wait_for_cancel();
  std::lock_guard lock(mutex_);
  return base::error("{}", closed().empty() ? kCancelled : closed());
}

Result<List> Session::list_checkpoints(bool validated, std::optional<base::Seconds> timeout) {
  wire::ListCheckpoints request;
  {
    std::lock_guard lock(mutex_);
    request.reports = next_report_;
  }
  request.validated = validated;
  auto answer = ask(request, timeout);
  if (!answer && answer.error().code() == base::ErrorCode::kTimeout) {
    request.now = true;
    answer = ask(request);
  }
  if (!answer) return std::move(answer).error();
  return answer->as_list();
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
  asio::post(io_, [this, payload = std::move(payload)] { channel_->send_payload(payload); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return goodbye_ || !closed().empty(); });
  return {};
}

void Session::fail(wire::Failed failure) {
  if (!post(failure)) {
    // The pickled exception may contain large objects of the function. Type, text and traceback are sufficient.
    failure.exception.reset();
    failure.message = shortened(std::move(failure.message));
    failure.traceback = shortened(std::move(failure.traceback));
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

template <typename Request>
Result<Value> Session::ask(Request request, std::optional<base::Seconds> timeout) {
  std::future<Result<Value>> answer;
  {
    std::lock_guard lock(mutex_);
    if (const auto why = closed(); !why.empty()) return base::error("{}", why);
    request.id = next_request_++;
    Pending& made = requests_[request.id];
    made.thread = static_cast<int>(::syscall(SYS_gettid));
    answer = made.answer.get_future();
  }
  const std::int64_t id = request.id;
  const wire::Message message(std::move(request));
  if (auto posted = post(message); !posted) {
    std::lock_guard lock(mutex_);
    requests_.erase(id);
    return std::move(posted).error().wrap(wire::name_of(message));
  }
  if (timeout && answer.wait_for(*timeout) != std::future_status::ready) {
    std::lock_guard lock(mutex_);
    // The reply may have arrived between the wait and the lock.
    if (requests_.erase(id) > 0) {
      return base::error(base::ErrorCode::kTimeout, "timed out after {:.3g} s", timeout->count());
    }
  }
  return answer.get();
}

Result<void> Session::store_set(const std::string& key, std::string value) {
  wire::StoreSet request;
  request.key = key;
  request.value.data = std::move(value);
  TRIREME_TRY(ask(std::move(request)));
  return {};
}

Result<std::string> Session::store_get(const std::string& key, base::Seconds timeout) {
  wire::StoreGet request;
  request.key = key;
  request.timeout_s = timeout.count();
  TRIREME_ASSIGN(auto value, ask(std::move(request), timeout), "store key '{}'", key);
  return value.as_bytes().data;
}

Result<std::int64_t> Session::store_add(const std::string& key, std::int64_t amount) {
  wire::StoreAdd request;
  request.key = key;
  request.amount = amount;
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_int();
}

Result<void> Session::store_wait(const std::vector<std::string>& keys, base::Seconds timeout) {
  wire::StoreWait request;
  request.keys = keys;
  request.timeout_s = timeout.count();
  TRIREME_TRY(ask(std::move(request), timeout), "store keys {}", fmt::join(keys, ", "));
  return {};
}

Result<std::vector<std::string>> Session::store_multi_get(const std::vector<std::string>& keys, base::Seconds timeout) {
  wire::StoreMultiGet request;
  request.keys = keys;
  request.timeout_s = timeout.count();
  TRIREME_ASSIGN(auto value, ask(std::move(request), timeout), "store keys {}", fmt::join(keys, ", "));
  std::vector<std::string> values;
  for (const auto& each : value.as_list()) values.push_back(each.as_bytes().data);
  return values;
}

Result<void> Session::store_append(const std::string& key, std::string value) {
  wire::StoreAppend request;
  request.key = key;
  request.value.data = std::move(value);
  TRIREME_TRY(ask(std::move(request)));
  return {};
}

Result<bool> Session::store_check(const std::vector<std::string>& keys) {
  wire::StoreCheck request;
  request.keys = keys;
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_bool();
}

Result<bool> Session::store_delete(const std::string& key) {
  wire::StoreDelete request;
  request.key = key;
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_bool();
}

Result<std::string> Session::store_compare_set(const std::string& key, std::string expected, std::string desired) {
  wire::StoreCompareSet request;
  request.key = key;
  request.expected.data = std::move(expected);
  request.desired.data = std::move(desired);
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_bytes().data;
}

Result<std::int64_t> Session::store_count() {
  TRIREME_ASSIGN(auto value, ask(wire::StoreCount{}));
  return value.as_int();
}

void Session::set_collective_timeout(base::Seconds timeout) {
  wire::CollectiveTimeout message;
  message.seconds = timeout.count();
  tell(message);
}

Result<void> Session::barrier() {
  wire::Barrier request;
  {
    std::lock_guard lock(mutex_);
    request.sequence = next_collective_++;
  }
  TRIREME_TRY(ask(std::move(request)));
  return {};
}

Result<std::string> Session::broadcast(std::optional<std::string> data) {
  wire::Broadcast request;
  {
    std::lock_guard lock(mutex_);
    request.sequence = next_collective_++;
  }
  if (data && data->size() + 1024 > wire::kWorkerFrameLimit) {
    return base::error("cannot broadcast {} bytes: the limit is {}", data->size(), wire::kWorkerFrameLimit);
  }
  if (data) request.data = Bytes{*std::move(data)};
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_bytes().data;
}

}  // namespace trireme::worker
