#pragma once

#include <atomic>

#include "unit/wire/live_server.h"
#include "wire/relay.h"

namespace trireme::wire::testing {

// A relay on a thread of its own, as in an agent.
class LiveRelay {
 public:
  explicit LiveRelay(Relay::Controller controller) {
    auto opened = Relay::open(io_, std::move(controller), [this] { ended_ = true; });
    REQUIRE(opened);
    relay_ = *std::move(opened);
    address_ = relay_->address();
    thread_ = std::jthread([this] {
      auto work = asio::make_work_guard(io_);
      io_.run();
    });
  }
  ~LiveRelay() {
    asio::post(io_, [this] {
      relay_->close();
      io_.stop();
    });
    thread_.join();
  }

  const Address& address() const { return address_; }
  bool ended() const { return ended_; }
  void close() {
    asio::post(io_, [this] { relay_->close(); });
  }

 private:
  asio::io_context io_{1};
  std::shared_ptr<Relay> relay_;
  Address address_;
  std::atomic<bool> ended_ = false;
  std::jthread thread_;
};

}  // namespace trireme::wire::testing
