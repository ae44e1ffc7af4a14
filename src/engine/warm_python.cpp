#include "engine/warm_python.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"

namespace trireme::engine {
namespace {

// A fork takes milliseconds once all modules are imported.
constexpr std::chrono::seconds kForkPatience{30};
constexpr int kShutdownPatienceMs = 1000;

bool ended_within(const Process& process, int milliseconds) {
  pollfd fd{.fd = process.pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&fd, 1, milliseconds) == 1;
}

ExitStatus end(const Process& process) {
  // Its group is only itself: workers create their own groups.
  if (!ended_within(process, 0)) signal_group(process, SIGKILL);
  return reap(process);
}

}  // namespace

void WarmPython::warm_up(const std::map<std::string, std::string>& env, const std::vector<std::string>& preload,
                         const std::vector<std::string>& sys_path) {
  if (!usable_ || argv_.empty()) return;
  if (!zygote_) {
    auto zygote = Zygote::start(argv_, env);
    if (!zygote) {
      give_up(zygote.error().message());
      return;
    }
    zygote_.emplace(std::move(zygote).value());
    ready_ = false;
    preloads_ = 0;
  }
  if (zygote_->preload(preload, sys_path, env)) ++preloads_;
}

bool WarmPython::fork(std::uint64_t id, const ProcessSpec& spec) {
  warm_up(spec.env, spec.python->preload, spec.python->sys_path);
  if (!usable_ || !zygote_) return false;
  if (!zygote_->suits(spec)) {
    base::log_info(
        "{} is executed, not forked: its environment sets variables that are only read at program start, or is not "
        "UTF-8",
        spec.label);
    return false;
  }
  pending_.emplace(id, Pending{.spec = spec, .deadline = {}});
  return true;
}

// The socket may outlive the process: a child that was just forked has a copy.
bool WarmPython::alive() const { return zygote_ && !ended_within(zygote_->process(), 0); }

bool WarmPython::cancel(std::uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end() || found->second.deadline) return false;
  pending_.erase(found);
  return true;
}

void WarmPython::advance(base::MonotonicTime now) {
  if (!zygote_) return;
  if (warm()) send_pending(now);
  if (auto sent = zygote_->flush(); !sent) {
    lose(sent.error().message());
    return;
  }
  const auto deadline = next_deadline();
  if (deadline && *deadline <= now) lose(fmt::format("no answer for {} s", kForkPatience.count()));
}

std::optional<base::MonotonicTime> WarmPython::next_deadline() const {
  std::optional<base::MonotonicTime> next;
  for (const auto& [id, pending] : pending_) {
    if (pending.deadline) next = std::min(next.value_or(*pending.deadline), *pending.deadline);
  }
  return next;
}

// Requests are held back until all modules are imported, so that a fork can be cancelled until then and is fast
// afterwards.
void WarmPython::send_pending(base::MonotonicTime now) {
  std::vector<std::uint64_t> without_log;
  for (auto& [id, pending] : pending_) {
    if (pending.deadline) continue;
    auto log = open_log(pending.spec);
    if (!log) {
      without_log.push_back(id);
      continue;
    }
    zygote_->fork(id, pending.spec, std::move(log).value());
    pending.deadline = now + kForkPatience;
  }
  // Executing the worker fails with the same error and reports it.
  for (const auto id : without_log) {
    pending_.erase(id);
    owner_.unavailable(id);
  }
}

void WarmPython::on_readable() {
  if (!zygote_) return;
  auto messages = zygote_->receive();
  if (!messages) {
    lose(messages.error().message());
    return;
  }
  for (auto& message : *messages) handle(std::move(message));
}

void WarmPython::handle(Zygote::Message message) {
  if (std::holds_alternative<Zygote::Ready>(message)) {
    ready_ = true;
  } else if (const auto* preloaded = std::get_if<Zygote::Preloaded>(&message)) {
    preloads_ = std::max(0, preloads_ - 1);
    // Not an error here: a worker that needs the module raises it with a traceback.
    for (const auto& [module, why] : preloaded->failed) base::log_debug("{} could not be preloaded: {}", module, why);
  } else if (const auto* replacing = std::get_if<Zygote::Replacing>(&message)) {
    ready_ = false;
    base::log_warning("the warm Python process restarts without {}, which workers import themselves: {}",
                      replacing->module, replacing->why);
  } else if (auto* forked = std::get_if<Zygote::Forked>(&message)) {
    pending_.erase(forked->id);
    owner_.forked(forked->id, std::move(forked->process));
  } else if (const auto* refused = std::get_if<Zygote::Refused>(&message)) {
    const bool known = pending_.erase(refused->id) > 0;
    give_up(refused->why);
    if (known) owner_.unavailable(refused->id);
  } else if (const auto* exited = std::get_if<Zygote::ChildExited>(&message)) {
    owner_.exited(exited->pid, exited->status);
  }
}

void WarmPython::give_up(const std::string& why) {
  if (!std::exchange(usable_, false)) return;
  base::log_warning("Python workers are no longer forked from a warm process, and start slower: {}", why);
  std::vector<std::uint64_t> unsent;
  for (const auto& [id, pending] : pending_) {
    if (!pending.deadline) unsent.push_back(id);
  }
  for (const auto id : unsent) {
    pending_.erase(id);
    owner_.unavailable(id);
  }
}

void WarmPython::lose(const std::string& why) {
  const int pid = zygote_->process().pid;
  const ExitStatus status = end(zygote_->process());
  zygote_.reset();
  const std::string text =
      fmt::format("the warm Python process (pid {}) ended with {} ({})", pid, to_string(status), why);
  // A process that was never ready would fail again. One that was killed later is replaced when needed.
  if (!ready_) {
    give_up(text);
  } else if (usable_) {
    base::log_warning("{}; workers that waited for it are executed instead", text);
  }
  for (auto& [id, pending] : std::exchange(pending_, {})) owner_.unavailable(id);
  owner_.gone();
}

void WarmPython::shut_down() {
  if (!zygote_) return;
  // While it imports, it does not notice that the socket is closed.
  const bool listens = warm();
  const Process process = zygote_->release();
  if (!listens || !ended_within(process, kShutdownPatienceMs)) signal_group(process, SIGKILL);
  reap(process);
  zygote_.reset();
}

}  // namespace trireme::engine
