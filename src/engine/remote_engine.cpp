#include "engine/remote_engine.h"

#include <pthread.h>
#include <unistd.h>

#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <exception>

#include "base/environment.h"
#include "base/log.h"
#include "base/signals.h"
#include "engine/placement.h"
#include "engine/remote_table.h"
#include "engine/resources.h"

namespace trireme::engine {
namespace {

// Adapters may start a cluster, or wait for the first node.
constexpr std::chrono::seconds kStartPatience{180};

}  // namespace

RemoteEngine::RemoteEngine(RemoteEngineOptions options)
    : options_(std::move(options)), owner_(::getpid()), io_(std::make_unique<asio::io_context>(1)) {}

Result<std::unique_ptr<RemoteEngine>> RemoteEngine::start(RemoteEngineOptions options) {
  const std::string name = options.name;
  std::unique_ptr<RemoteEngine> engine(new RemoteEngine(std::move(options)));
  engine->table_ = std::make_unique<RemoteTable>(*engine->io_, engine->clock_, engine->options_, engine->nodes_);
  auto ready = std::make_shared<std::promise<Result<void>>>();
  auto answer = ready->get_future();
  engine->thread_ = std::make_unique<std::jthread>([&io = *engine->io_] {
    base::block_signals();
    ::pthread_setname_np(::pthread_self(), "trireme-remote");
    auto work = asio::make_work_guard(io);
    // The top of this thread, one of the places that catch exceptions. Agents end when their connections do.
    try {
      io.run();
    } catch (const std::exception& problem) {
      base::log_error("the engine failed and its workers will stop: {}", problem.what());
    }
  });
  engine->post(
      [ready](RemoteTable& table) { table.begin([ready](Result<void> done) { ready->set_value(std::move(done)); }); });
  if (answer.wait_for(kStartPatience) != std::future_status::ready) {
    return base::error("engine = '{}': its adapter was not ready within {} s", name, kStartPatience.count());
  }
  TRIREME_TRY(answer.get(), "engine = '{}'", name);
  return engine;
}

RemoteEngine::~RemoteEngine() {
  if (!thread_) return;
  if (owner_ != ::getpid()) {
    // A forked copy does not have the thread; joining it would wait forever. The adapter and the sockets belong to the
    // parent.
    [[maybe_unused]] auto* never_joined = thread_.release();
    [[maybe_unused]] auto* never_ended = table_.release();
    [[maybe_unused]] auto* never_closed = io_.release();
    return;
  }
  asio::post(*io_, [this] {
    table_->shut_down();
    io_->stop();
  });
  thread_->join();
}

void RemoteEngine::post(std::function<void(RemoteTable&)> action) {
  asio::post(*io_, [this, action = std::move(action)] { action(*table_); });
}

GangId RemoteEngine::reserve(GangRequest request, EventHandler handler) {
  GangId gang = 0;
  {
    const std::lock_guard lock(mutex_);
    gang = next_gang_++;
  }
  post([gang, request = std::move(request), handler = std::move(handler)](RemoteTable& table) mutable {
    table.reserve(gang, std::move(request), std::move(handler));
  });
  return gang;
}

void RemoteEngine::release(GangId gang) {
  TRIREME_CHECK(!thread_ || thread_->get_id() != std::this_thread::get_id(), "release({}) called from a handler", gang);
  auto done = std::make_shared<std::promise<void>>();
  const auto gone = done->get_future();
  post([gang, done](RemoteTable& table) { table.release(gang, std::move(*done)); });
  gone.wait();
}

void RemoteEngine::start(GangId gang, int bundle, ProcessSpec spec) {
  post([gang, bundle, spec = std::move(spec)](RemoteTable& table) mutable {
    table.start(gang, bundle, std::move(spec));
  });
}

void RemoteEngine::kill(GangId gang, int bundle, base::Seconds grace) {
  post([=](RemoteTable& table) { table.kill(gang, bundle, grace); });
}

void RemoteEngine::warm_up(std::vector<std::string> preload) {
  wire::AgentWarmUp message;
  message.env = base::environment();
  message.preload = std::move(preload);
  post([message = std::move(message)](RemoteTable& table) { table.warm_up(message); });
}

std::vector<NodeInfo> RemoteEngine::nodes() const {
  std::unique_lock lock(nodes_.mutex);
  nodes_.changed.wait(lock, [&] { return nodes_.known; });
  return nodes_.nodes;
}

Result<void> RemoteEngine::check(const GangRequest& asked) const {
  GangRequest request = asked;
  const auto now = nodes();
  std::string trouble;
  {
    const std::lock_guard lock(nodes_.mutex);
    request.trainer.clear();  // the driver needs no room on the nodes
    if (!nodes_.places) TRIREME_TRY(refuse_labels(request), "engine = '{}'", options_.name);
    trouble = nodes_.trouble;
  }
  const std::string missing = trouble.empty() ? "" : fmt::format(" (not available: {})", trouble);
  if (now.empty()) return base::error("engine = '{}': no node is available{}", options_.name, missing);
  TRIREME_TRY(check_capacity(request, now), "engine = '{}'{}", options_.name, missing);
  return {};
}

bool RemoteEngine::may_add_nodes() const {
  const std::lock_guard lock(nodes_.mutex);
  return nodes_.places;
}

std::optional<wire::Address> RemoteEngine::listen_address() const {
  const std::lock_guard lock(nodes_.mutex);
  return nodes_.listen;
}

NodeMemory RemoteEngine::node_memory() const {
  const std::lock_guard lock(nodes_.mutex);
  return nodes_.memory;
}

}  // namespace trireme::engine
