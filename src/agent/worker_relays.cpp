#include "agent/worker_relays.h"

#include <unistd.h>

#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <future>

#include "base/host.h"
#include "base/log.h"
#include "base/signals.h"

namespace trireme::agent {

WorkerRelays::WorkerRelays(int agent) : agent_(agent) {
  thread_ = std::jthread([this] {
    base::block_signals();
    auto work = asio::make_work_guard(io_);
    // The top of this thread. The sockets are closed with the agent, and the workers end when their leases do.
    try {
      io_.run();
    } catch (const std::exception& problem) {
      base::log_error("the relay of the workers failed: {}", problem.what());
    }
  });
}

WorkerRelays::~WorkerRelays() {
  asio::post(io_, [this] {
    for (const auto& [run, relay] : relays_) relay->close();
    io_.stop();
  });
  thread_.join();
}

base::Result<wire::Address> WorkerRelays::address_for(const wire::Ticket& worker) {
  // Shared: the thread may still be leaving the call when the result is available.
  const auto opened = std::make_shared<std::promise<base::Result<wire::Address>>>();
  asio::post(io_, [&, opened] { opened->set_value(open(worker)); });
  return opened->get_future().get();
}

base::Result<wire::Address> WorkerRelays::open(const wire::Ticket& worker) {
  auto& relay = relays_[worker.run_id];
  if (relay && relay->usable()) return relay->address();
  if (relay) relay->close();
  wire::Relay::Controller controller{worker.address, worker.key, {}};
  controller.hello.run_id = worker.run_id;
  controller.hello.key_name = worker.key_name;
  controller.hello.rank = agent_;
  controller.hello.pid = ::getpid();
  controller.hello.host = base::host_name();
  auto made = wire::Relay::open(io_, std::move(controller), [this, run = worker.run_id] { relays_.erase(run); });
  if (!made) {
    relays_.erase(worker.run_id);
    return std::move(made).error();
  }
  relay = *std::move(made);
  return relay->address();
}

}  // namespace trireme::agent
