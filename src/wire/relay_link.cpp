#include "wire/relay_link.h"

#include <algorithm>
#include <asio/post.hpp>
#include <cstring>
#include <optional>
#include <vector>

#include "base/log.h"

namespace trireme::wire {
namespace {

// Each for at most the greeting time, as on the controller's own address.
constexpr std::size_t kMostGreetings = 256;
constexpr std::size_t kMostCarried = 8192;

}  // namespace

// One connection that a relay carries.
class RelayedChannel final : public Channel {
 public:
  RelayedChannel(std::shared_ptr<RelayLink> link, std::uint32_t number)
      : link_(std::move(link)), number_(number), greeting_(link_->greets_.secret) {}

  void send_payload(std::string_view payload) override {
    if (!link_ || closing_) return;
    append_frame(queued_, payload);
    list();
  }
  void close_when_sent() override {
    closing_ = true;
    if (unsent() == 0) close();
  }
  // As on a socket, the handler learns of it later.
  void close() override {
    if (!link_) return;
    auto link = detach();
    link->drop(number_);
    if (greeting_) return;
    asio::post(link->io_,
               [link, self = shared_from_this()] { link->handler_.closed(self, base::error("closed locally")); });
  }
  bool open() const override { return link_ != nullptr; }
  std::size_t unsent() const override { return queued_.size() - sent_; }

  void greet() { send_payload(greeting_->challenge()); }
  bool in_greeting() const { return greeting_.has_value(); }
  // Whether its time is over.
  bool greets_too_long() { return greeting_ && ++greeting_parts_ > kGreetingParts; }

  void receive(std::string_view bytes) {
    while (!bytes.empty() && link_) {
      auto [room, size] = reader_.prepare();
      size = std::min(size, bytes.size());
      std::memcpy(room, bytes.data(), size);
      reader_.commit(size);
      bytes.remove_prefix(size);
      take_frames();
    }
  }

  // The next piece of what is queued.
  void append_piece(std::string& out) {
    listed_ = false;
    const std::size_t size = std::min({unsent(), credit_, kRelayPiece});
    if (size == 0) return;
    RelayFrame{RelayFrame::Kind::kData, number_, std::string_view(queued_).substr(sent_, size)}.append_to(out);
    sent_ += size;
    credit_ -= size;
    if (unsent() > 0) return list();
    // Ten thousand workers are idle most of the time: none may keep the memory of its start message.
    std::string().swap(queued_);
    sent_ = 0;
    if (closing_) close();
  }
  void grant(std::uint32_t bytes) {
    credit_ = std::min(credit_ + bytes, kRelayWindow);
    list();
  }

  void abandon() {
    if (link_) detach();
  }
  // It proved no key, or the connection ended before.
  void refuse(const base::Error& why) {
    if (!link_) return;
    const auto link = detach();
    link->drop(number_);
    link->greets_.refused(why);
  }
  void end(const base::Error& why) {
    if (!link_) return;
    if (greeting_) return refuse(why);
    const auto link = detach();
    link->drop(number_);
    link->handler_.closed(shared_from_this(), why);
  }

 private:
  std::shared_ptr<RelayedChannel> self() { return std::static_pointer_cast<RelayedChannel>(shared_from_this()); }

  std::shared_ptr<RelayLink> detach() {
    if (greeting_) --link_->greeting_;
    std::string().swap(queued_);
    sent_ = 0;
    return std::exchange(link_, nullptr);
  }

  void list() {
    if (listed_ || unsent() == 0 || credit_ == 0) return;
    listed_ = true;
    link_->list(self());
  }

  void take_frames() {
    while (link_) {
      auto frame = reader_.next();
      if (!frame) return end(frame.error());
      if (!*frame) return;
      auto message = decode(**frame);
      if (!message) return end(message.error());
      take(*std::move(message));
    }
  }

  void take(Message message) {
    ServerHandler& handler = link_->handler_;
    if (!greeting_) return handler.received(shared_from_this(), std::move(message));
    const auto admit = [&](const Hello& hello) -> base::Result<Welcome> {
      if (hello.role == kRelayRole) return base::error("a relay carries no relays");
      return handler.admit(hello);
    };
    if (auto taken = greeting_->take(std::move(message), *this, admit); !taken) return refuse(taken.error());
    greeting_.reset();
    --link_->greeting_;
    reader_.set_limit(kWorkerFrameLimit);
    handler.opened(shared_from_this());
  }

  std::shared_ptr<RelayLink> link_;  // shared, because channels outlive it; null: closed
  const std::uint32_t number_;
  std::optional<Greeting> greeting_;  // until the peer has proved its key
  int greeting_parts_ = 0;
  FrameReader reader_{kHandshakeFrameLimit};
  std::string queued_;
  std::size_t sent_ = 0;  // of that
  std::size_t credit_ = kRelayWindow;
  bool listed_ = false;
  bool closing_ = false;
};

RelayLink::RelayLink(asio::io_context& io, std::shared_ptr<SocketChannel> carrier, Greets greets,
                     ServerHandler& handler)
    : io_(io), carrier_(std::move(carrier)), greets_(std::move(greets)), handler_(handler) {}

asio::awaitable<void> RelayLink::run() {
  prepare_for_relay(*carrier_);
  carrier_->set_on_written([link = weak_from_this()] {
    if (const auto open = link.lock()) open->write();
  });
  while (true) {
    const auto payload = co_await carrier_->read_frame();
    if (!payload) co_return end(payload.error());
    const auto frame = RelayFrame::parse(*payload);
    const auto taken = frame ? take(*frame) : base::Result<void>(frame.error());
    if (taken) continue;
    base::log_warning("the agent on {}: {}; its connection is closed", carrier_->peer().host, taken.error().message());
    co_return end(taken.error());
  }
}

base::Result<void> RelayLink::take(const RelayFrame& frame) {
  const auto found = channels_.find(frame.connection);
  if (frame.kind == RelayFrame::Kind::kOpen) {
    if (found != channels_.end()) return base::error("connection {} was opened twice", frame.connection);
    open(frame.connection);
    return {};
  }
  if (found == channels_.end()) return {};  // closed by this side in the meantime
  const auto channel = found->second;
  if (frame.kind == RelayFrame::Kind::kData) {
    channel->receive(frame.data);
  } else if (frame.kind == RelayFrame::Kind::kClose) {
    channels_.erase(found);  // no frame for it is needed
    channel->end(base::error("closed by the peer"));
  } else {
    TRIREME_ASSIGN(const auto bytes, decode_credit(frame.data));
    channel->grant(bytes);
  }
  return {};
}

void RelayLink::open(std::uint32_t number) {
  if (greeting_ >= kMostGreetings || channels_.size() >= kMostCarried) {
    RelayFrame{RelayFrame::Kind::kClose, number, {}}.append_to(closes_);
    write_soon();
    return greets_.refused(base::error("too many connections"));
  }
  auto channel = std::make_shared<RelayedChannel>(shared_from_this(), number);
  channels_[number] = channel;
  if (greeting_++ == 0) limit_greetings();
  channel->greet();
}

void RelayLink::end(const base::Error& why) {
  const auto channels = std::exchange(channels_, {});
  for (const auto& [number, channel] : channels) channel->end(why);
  greeting_timer_.cancel();
  listed_.clear();
}

void RelayLink::abandon() {
  for (const auto& [number, channel] : std::exchange(channels_, {})) channel->abandon();
  listed_.clear();
}

void RelayLink::list(std::shared_ptr<RelayedChannel> channel) {
  listed_.push_back(std::move(channel));
  write_soon();
}

void RelayLink::drop(std::uint32_t number) {
  if (channels_.erase(number) == 0) return;
  RelayFrame{RelayFrame::Kind::kClose, number, {}}.append_to(closes_);
  write_soon();
}

// One write for what the handlers that are ready now send to the workers of a node.
void RelayLink::write_soon() {
  if (std::exchange(write_posted_, true)) return;
  asio::post(io_, [self = shared_from_this()] {
    self->write_posted_ = false;
    self->write();
  });
}

void RelayLink::write() {
  if (carrier_->unsent() > 0) return;  // it calls again
  std::string batch = std::exchange(closes_, {});
  while (!listed_.empty() && batch.size() < kRelayBatch) {
    const auto channel = std::move(listed_.front());
    listed_.pop_front();
    if (channel->open()) channel->append_piece(batch);
  }
  if (!batch.empty()) carrier_->send_bytes(batch);
}

void RelayLink::limit_greetings() {
  greeting_timer_.expires_after(greets_.time / kGreetingParts);
  greeting_timer_.async_wait([link = weak_from_this()](const asio::error_code& cancelled) {
    const auto self = link.lock();
    if (cancelled || !self) return;
    std::vector<std::shared_ptr<RelayedChannel>> late;
    for (const auto& [number, channel] : self->channels_) {
      if (channel->greets_too_long()) late.push_back(channel);
    }
    for (const auto& channel : late) channel->refuse(base::error("no hello: it is silent"));
    if (self->greeting_ > 0) self->limit_greetings();
  });
}

}  // namespace trireme::wire
