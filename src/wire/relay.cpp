#include "wire/relay.h"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include "base/hex.h"
#include "base/log.h"
#include "wire/handshake.h"
#include "wire/secret.h"

namespace trireme::wire {
namespace {

// Shorter than the patience of a worker, which then learns the reason.
constexpr std::chrono::seconds kLongestJoin{20};
// Thousands of agents may connect at the same time, and the controller closes connections beyond a limit.
constexpr int kJoinTries = 4;
constexpr std::chrono::milliseconds kJoinPause{250};

asio::awaitable<void> wait_for(asio::io_context& io, std::chrono::milliseconds time) {
  asio::steady_timer timer(io, time);
  asio::error_code ignored;  // nobody cancels it
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace

base::Result<std::shared_ptr<Relay>> Relay::open(asio::io_context& io, Controller controller,
                                                 std::function<void()> ended) {
  std::shared_ptr<Relay> made(new Relay(io, std::move(controller), std::move(ended)));
  Address here;
  here.name = "trireme-relay-" + base::to_hex(random_bytes(16));
  const auto accepted = [relay = made->weak_from_this()](Socket socket) {
    if (const auto open = relay.lock()) open->accept(std::move(socket));
  };
  TRIREME_ASSIGN(made->listener_, Listener::open(io, std::move(here), accepted));
  made->room_.expires_at(std::chrono::steady_clock::time_point::max());
  made->patience_.expires_after(kLongestJoin);
  made->patience_.async_wait([relay = made->weak_from_this()](const asio::error_code& cancelled) {
    const auto open = relay.lock();
    if (cancelled || !open) return;
    open->give_up(fmt::format("no answer from the driver at {} within {} s", open->controller_.address.text(),
                              kLongestJoin.count()));
  });
  asio::co_spawn(io, connect(made), asio::detached);
  return made;
}

Relay::Relay(asio::io_context& io, Controller controller, std::function<void()> ended)
    : io_(io), controller_(std::move(controller)), ended_(std::move(ended)) {
  controller_.hello.role = kRelayRole;
}

void Relay::close() {
  ended_ = nullptr;
  give_up("the agent ends");
  listener_->close();
  if (carrier_) carrier_->close();
  for (const auto& [number, line] : lines_) line->worker->close();
}

asio::awaitable<void> Relay::connect(std::shared_ptr<Relay> self) {
  auto joined = co_await join(self->io_, self->controller_.address, self->controller_.key, self->controller_.hello);
  for (int failed = 1; !joined && joined.error().code() != base::ErrorCode::kDenied && failed < kJoinTries; ++failed) {
    co_await wait_for(self->io_, kJoinPause * failed);
    if (!self->usable()) co_return;
    joined = co_await join(self->io_, self->controller_.address, self->controller_.key, self->controller_.hello);
  }
  self->patience_.cancel();
  if (!joined) co_return self->give_up(joined.error().message());
  if (!self->usable()) co_return joined->channel->close();
  self->carrier_ = joined->channel;
  prepare_for_relay(*self->carrier_);
  self->carrier_->set_on_written([relay = self->weak_from_this()] {
    if (const auto open = relay.lock()) open->write();
  });
  for (auto& worker : std::exchange(self->waiting_, {})) self->begin(std::move(worker));
  while (true) {
    const auto payload = co_await self->carrier_->read_frame();
    if (!payload) break;
    const auto frame = RelayFrame::parse(*payload);
    const auto taken = frame ? self->take(*frame) : base::Result<void>(frame.error());
    if (taken) continue;
    base::log_warning("the connection to {} is closed: {}", self->controller_.address.text(), taken.error().message());
    break;
  }
  self->end();
}

// Workers that connect later get the reason, too.
void Relay::give_up(const std::string& why) {
  if (!usable()) return;
  unusable_ = why;
  for (const auto& worker : std::exchange(waiting_, {})) refuse(*worker);
}

void Relay::refuse(SocketChannel& worker) const {
  worker.send_payload(no_challenge(unusable_));
  worker.close_when_sent();
}

void Relay::accept(Socket socket) {
  auto worker = std::make_shared<SocketChannel>(std::move(socket), kHandshakeFrameLimit);
  if (!usable()) return refuse(*worker);
  if (carrier_) return begin(std::move(worker));
  waiting_.push_back(std::move(worker));
}

void Relay::begin(std::shared_ptr<SocketChannel> worker) {
  const auto line = std::make_shared<Line>(Line{next_line_++, std::move(worker)});
  lines_[line->number] = line;
  line->worker->set_on_written([relay = weak_from_this(), weak = std::weak_ptr(line)] {
    const auto open = relay.lock();
    const auto held = weak.lock();
    if (open && held) open->grant(*held);
  });
  send(RelayFrame::Kind::kOpen, line->number);
  asio::co_spawn(io_, carry(shared_from_this(), line), asio::detached);
}

asio::awaitable<void> Relay::carry(std::shared_ptr<Relay> self, std::shared_ptr<Line> line) {
  while (line->worker->open()) {
    if (self->queued_.size() >= kRelayBatch) {
      asio::error_code ignored;  // cancelled: there may be room
      co_await self->room_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      continue;
    }
    const auto bytes = co_await line->worker->read_bytes(self->buffer_);
    if (!bytes) break;
    if (self->lines_.contains(line->number)) self->send(RelayFrame::Kind::kData, line->number, *bytes);
  }
  line->worker->close();
  if (self->lines_.erase(line->number) > 0) self->send(RelayFrame::Kind::kClose, line->number);
}

base::Result<void> Relay::take(const RelayFrame& frame) {
  const auto found = lines_.find(frame.connection);
  if (found == lines_.end()) return {};  // closed by the worker in the meantime
  Line& line = *found->second;
  if (frame.kind == RelayFrame::Kind::kClose) {
    line.worker->close_when_sent();
    lines_.erase(found);
  } else if (frame.kind == RelayFrame::Kind::kData) {
    line.received += frame.data.size();
    if (line.received - line.granted > kRelayWindow) return base::error("it sent more than the window of a worker");
    line.worker->send_bytes(frame.data);
  } else {
    return base::error("a controller does not send frames of the kind {}", static_cast<int>(frame.kind));
  }
  return {};
}

// Not for each small message.
void Relay::grant(Line& line) {
  const std::size_t read = line.received - line.worker->unsent();
  if (read - line.granted < kRelayWindow / 2 || !lines_.contains(line.number)) return;
  send(RelayFrame::Kind::kCredit, line.number, encode_credit(static_cast<std::uint32_t>(read - line.granted)));
  line.granted = read;
}

// One write for what several workers send at the same time.
void Relay::send(RelayFrame::Kind kind, std::uint32_t number, std::string_view data) {
  RelayFrame{kind, number, data}.append_to(queued_);
  if (std::exchange(write_posted_, true)) return;
  asio::post(io_, [self = shared_from_this()] {
    self->write_posted_ = false;
    self->write();
  });
}

void Relay::write() {
  if (!carrier_ || carrier_->unsent() > 0 || queued_.empty()) return;
  carrier_->send_bytes(queued_);
  queued_.clear();
  room_.cancel();
}

// The workers get what has arrived for them.
void Relay::end() {
  unusable_ = "the connection to the controller was lost";
  carrier_->close();
  listener_->close();
  for (const auto& [number, line] : std::exchange(lines_, {})) line->worker->close_when_sent();
  queued_.clear();
  room_.cancel();
  if (ended_) ended_();
}

}  // namespace trireme::wire
