#include "engine/local_engine.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "base/environment.h"
#include "base/log.h"
#include "base/signals.h"
#include "engine/resources.h"

namespace trireme::engine {
namespace {

std::vector<std::string> zygote_argv(std::vector<std::string> python) {
  if (!python.empty()) python.insert(python.end(), {"-m", "trireme._zygote"});
  return python;
}

void wake(int fd) {
  const std::uint64_t one = 1;
  // A failed write means that it is readable already.
  [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

}  // namespace

LocalEngine::LocalEngine(LocalEngineOptions options)
    : machine_(std::move(options.machine)), zygote_argv_(zygote_argv(std::move(options.python))) {}

LocalEngine::~LocalEngine() {
  if (!thread_) return;
  if (owner_ != ::getpid()) {
    // A forked copy does not have the thread; joining it would wait forever.
    [[maybe_unused]] auto* never_joined = thread_.release();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake(wake_.get());
  }
  thread_->join();
}

GangId LocalEngine::reserve(GangRequest request, EventHandler handler) {
  GangId gang = 0;
  {
    const std::lock_guard lock(mutex_);
    gang = next_gang_++;
  }
  post(command::Reserve{gang, std::move(request), std::move(handler)});
  return gang;
}

void LocalEngine::release(GangId gang) {
  std::promise<void> done;
  const auto gone = done.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (!thread_) return;
    TRIREME_CHECK(thread_->get_id() != std::this_thread::get_id(), "release({}) called from a handler", gang);
  }
  post(command::Release{gang, std::move(done)});
  // Also ready if the promise is dropped because the thread ended early.
  gone.wait();
}

void LocalEngine::declare(const MachineOptions& options) {
  const bool grew = machine_.declare(options);
  {
    const std::lock_guard lock(mutex_);
    if (!thread_) return;
  }
  if (grew) post(command::RoomGrew{});
}

Result<NodeInfo> LocalEngine::set_capacity(const Capacity& asked) {
  {
    const std::lock_guard lock(mutex_);
    TRIREME_CHECK(!thread_ || thread_->get_id() != std::this_thread::get_id(), "set_capacity() called from a handler");
  }
  // Query the NVIDIA driver here, if needed: the engine's thread must watch processes.
  if (asked.num_gpus) nodes();
  Result<Resources> answer = base::error("the local engine has stopped");
  std::promise<void> done;
  const auto decided = done.get_future();
  post(command::SetCapacity{asked, &answer, std::move(done)});
  decided.wait();
  TRIREME_ASSIGN(const Resources own, std::move(answer));
  NodeInfo node = machine_.node();
  for (const auto& [name, value] : node.total) node.in_use[name] = value - amount_of(node.available, name);
  // Time-shared CPUs are not reserved, so only the gangs that use them are counted.
  if (!node.cpus_declared) node.in_use["CPU"] = amount_of(own, "CPU");
  return node;
}

void LocalEngine::start(GangId gang, int bundle, ProcessSpec spec) {
  post(command::Start{gang, bundle, std::move(spec)});
}

void LocalEngine::kill(GangId gang, int bundle, base::Seconds grace) { post(command::Kill{gang, bundle, grace}); }

void LocalEngine::warm_up(std::vector<std::string> preload) { warm_up(std::move(preload), base::environment()); }

void LocalEngine::warm_up(std::vector<std::string> preload, std::map<std::string, std::string> env) {
  if (zygote_argv_.empty()) return;
  post(command::WarmUp{std::move(env), std::move(preload)});
}

void LocalEngine::post(Command command) {
  const std::lock_guard lock(mutex_);
  if (broken_ || stopping_ || (thread_ && owner_ != ::getpid())) return;
  commands_.push_back(std::move(command));
  if (!thread_) {
    wake_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    TRIREME_CHECK(wake_.valid(), "eventfd: errno {}", errno);
    owner_ = ::getpid();
    thread_ = std::make_unique<std::jthread>([this] { serve(); });
  }
  wake(wake_.get());
}

std::deque<Command> LocalEngine::take_commands() {
  const std::lock_guard lock(mutex_);
  return std::exchange(commands_, {});
}

// The top of the engine's thread, one of the places that catch exceptions. When the thread ends, the kernel kills its
// children.
void LocalEngine::serve() {
  base::block_signals();
  ::pthread_setname_np(::pthread_self(), "trireme-engine");
  try {
    take_turns();
  } catch (const std::exception& problem) {
    base::log_error("the local engine failed and its workers have stopped: {}", problem.what());
  }
  const std::lock_guard lock(mutex_);
  broken_ = true;
  commands_.clear();
}

void LocalEngine::take_turns() {
  GangTable gangs(machine_, zygote_argv_, clock_);
  const auto stopping = [this] {
    const std::lock_guard lock(mutex_);
    return stopping_;
  };
  while (!stopping()) {
    gangs.turn(wake_.get());
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    for (auto& command : take_commands()) gangs.handle(std::move(command));
  }
  gangs.shut_down();
}

}  // namespace trireme::engine
