#include "engine/supervisor.h"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

namespace trireme::engine {
namespace {

// The zygote reaps within milliseconds. Without its message the status is unknown.
constexpr std::chrono::seconds kStatusPatience{2};
constexpr std::chrono::seconds kShutdownPatience{5};

int milliseconds_until(std::optional<base::MonotonicTime> until, base::MonotonicTime now) {
  if (!until) return -1;
  const double left = std::chrono::duration<double, std::milli>(*until - now).count();
  // Rounded up, because the last millisecond would otherwise be a busy loop.
  return static_cast<int>(std::ceil(std::clamp(left, 0.0, 3600e3)));
}

void keep_earliest(std::optional<base::MonotonicTime>& earliest, std::optional<base::MonotonicTime> time) {
  if (time) earliest = std::min(earliest.value_or(*time), *time);
}

}  // namespace

Supervisor::Supervisor(std::vector<std::string> zygote_argv, Owner owner)
    : owner_(std::move(owner)),
      python_(std::move(zygote_argv),
              {.forked = [this](std::uint64_t id, Process process) { on_forked(id, std::move(process)); },
               .unavailable = [this](std::uint64_t id) { on_fork_unavailable(id); },
               .exited =
                   [this](int pid, ExitStatus status) {
                     const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& item) {
                       return item.second.forked && item.second.process.pid == pid;
                     });
                     if (found != entries_.end()) finish(found, status);
                   },
               .gone = [this] { on_zygote_gone(); }}) {}

void Supervisor::start(BundleId id, ProcessSpec spec) {
  const auto [entry, fresh] = entries_.try_emplace(id);
  if (!fresh) {
    owner_.start_failed(
        id, base::error("{}: its bundle already runs a process (pid {})", spec.label, entry->second.process.pid));
    return;
  }
  entry->second.spec = std::move(spec);
  entry->second.fork_id = next_fork_id_++;
  if (entry->second.spec.python && python_.fork(entry->second.fork_id, entry->second.spec)) return;
  execute(entry);
}

void Supervisor::execute(Entries::iterator entry) {
  const BundleId id = entry->first;
  auto process = launch_worker(entry->second.spec);
  if (!process) {
    auto error = std::move(process).error().wrap(fmt::format("could not start {}", entry->second.spec.label));
    entries_.erase(entry);
    owner_.start_failed(id, std::move(error));
    return;
  }
  entry->second.process = std::move(process).value();
  entry->second.oom_counters = out_of_memory_.counters(entry->second.process.pid);
  entry->second.state = Entry::State::kRunning;
  guard_.add(entry->second.process.pid, entry->second.spec.env);
  entry->second.spec = {};
  owner_.started(id, entry->second.process.pid, false);
}

Supervisor::Entries::iterator Supervisor::by_fork_id(std::uint64_t fork_id) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const auto& item) {
    return item.second.state == Entry::State::kForking && item.second.fork_id == fork_id;
  });
}

void Supervisor::on_forked(std::uint64_t fork_id, Process process) {
  const auto found = by_fork_id(fork_id);
  if (found == entries_.end()) {
    signal_group(process, SIGKILL);
    return;
  }
  Entry& entry = found->second;
  entry.process = std::move(process);
  entry.oom_counters = out_of_memory_.counters(entry.process.pid);
  entry.state = Entry::State::kRunning;
  entry.forked = true;
  entry.spec = {};
  if (entry.condemned) signal_group(entry.process, SIGKILL);
  // It was asked to stop before it was forked.
  if (entry.deadline) ask_group_to_end(entry.process);
  owner_.started(found->first, entry.process.pid, true);
}

void Supervisor::on_fork_unavailable(std::uint64_t fork_id) {
  const auto found = by_fork_id(fork_id);
  if (found == entries_.end()) return;
  if (!found->second.condemned && !found->second.deadline) {
    execute(found);
    return;
  }
  const BundleId id = found->first;
  auto error = base::error("{} was stopped before it started", found->second.spec.label);
  entries_.erase(found);
  owner_.start_failed(id, std::move(error));
}

void Supervisor::on_zygote_gone() {
  std::vector<BundleId> ended;
  for (auto& [id, entry] : entries_) {
    if (entry.state == Entry::State::kEnded) ended.push_back(id);
    if (entry.state != Entry::State::kRunning || !entry.forked) continue;
    // The parent-death signal is not delivered to a worker that had not requested it when its zygote died.
    signal_group(entry.process, SIGKILL);
    entry.condemned = true;
  }
  for (const auto& id : ended) {
    if (const auto entry = entries_.find(id); entry != entries_.end()) finish(entry, {});
  }
}

void Supervisor::kill(BundleId id, base::Seconds grace, base::MonotonicTime now) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.state == Entry::State::kEnded) return;
  Entry& entry = found->second;
  if (entry.state == Entry::State::kForking && python_.cancel(entry.fork_id)) {
    auto error = base::error("{} was stopped before it started", entry.spec.label);
    entries_.erase(found);
    owner_.start_failed(id, std::move(error));
    return;
  }
  const bool at_once = grace <= base::Seconds::zero();
  if (entry.state == Entry::State::kRunning) {
    if (at_once) signal_group(entry.process, SIGKILL);
    if (!at_once && !entry.deadline) ask_group_to_end(entry.process);
  }
  entry.condemned = entry.condemned || at_once;
  // A second kill may shorten the grace period, never extend it.
  if (!at_once) keep_earliest(entry.deadline, now + std::chrono::duration_cast<base::MonotonicTime::duration>(grace));
}

void Supervisor::end_gang(GangId gang) {
  for (auto entry = entries_.lower_bound({gang, 0}); entry != entries_.end() && entry->first.gang == gang;) {
    if (entry->second.state == Entry::State::kForking && python_.cancel(entry->second.fork_id)) {
      entry = entries_.erase(entry);
      continue;
    }
    entry->second.condemned = true;
    if (entry->second.state == Entry::State::kRunning) signal_group(entry->second.process, SIGKILL);
    ++entry;
  }
}

bool Supervisor::has_gang(GangId gang) const {
  const auto first = entries_.lower_bound({gang, 0});
  return first != entries_.end() && first->first.gang == gang;
}

void Supervisor::on_ended(BundleId id, base::MonotonicTime now) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.state != Entry::State::kRunning) return;
  Entry& entry = found->second;
  // Before the process is reaped: until then its pid and its group id are not reused.
  kill_group_remains(entry.process.pid);
  if (!entry.forked) {
    guard_.remove(entry.process.pid);
    finish(found, reap(entry.process));
  } else if (!python_.alive()) {
    finish(found, {});
  } else if (const auto status = peek_status(entry.process.pid); status.kind != ExitStatus::Kind::kUnknown) {
    // A zygote that is importing modules would report it seconds later.
    finish(found, status);
  } else {
    entry.state = Entry::State::kEnded;
    entry.deadline = now + kStatusPatience;
  }
}

void Supervisor::finish(Entries::iterator entry, ExitStatus status) {
  const BundleId id = entry->first;
  const int pid = entry->second.process.pid;
  // The zygote's message arrived before the pidfd was polled.
  if (entry->second.state == Entry::State::kRunning) kill_group_remains(pid);
  const bool killed_by_others = status == ExitStatus{ExitStatus::Kind::kSignal, SIGKILL} && !entry->second.condemned;
  std::string evidence;
  if (killed_by_others) evidence = out_of_memory_.evidence(pid, entry->second.oom_counters);
  entries_.erase(entry);
  owner_.exited(id, pid, status, std::move(evidence));
}

void Supervisor::advance(base::MonotonicTime now) {
  std::vector<BundleId> due;
  for (const auto& [id, entry] : entries_) {
    if (entry.deadline && *entry.deadline <= now) due.push_back(id);
  }
  for (const auto& id : due) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) continue;
    if (found->second.state == Entry::State::kEnded) {
      finish(found, {});
      continue;
    }
    found->second.deadline.reset();
    found->second.condemned = true;
    if (found->second.state == Entry::State::kRunning) signal_group(found->second.process, SIGKILL);
  }
  python_.advance(now);
}

std::optional<base::MonotonicTime> Supervisor::next_deadline() const {
  auto next = python_.next_deadline();
  for (const auto& [id, entry] : entries_) keep_earliest(next, entry.deadline);
  return next;
}

void Supervisor::wait(int wake_fd, std::optional<base::MonotonicTime> until, const base::Clock& clock) {
  advance(clock.now());
  guard_.keep_up();
  std::vector<pollfd> fds = {{.fd = wake_fd, .events = POLLIN, .revents = 0},
                             {.fd = python_.fd(), .events = python_.events(), .revents = 0}};
  std::vector<BundleId> ids;
  for (const auto& [id, entry] : entries_) {
    if (entry.state != Entry::State::kRunning) continue;
    fds.push_back({.fd = entry.process.pidfd.get(), .events = POLLIN, .revents = 0});
    ids.push_back(id);
  }
  keep_earliest(until, next_deadline());
  if (::poll(fds.data(), fds.size(), milliseconds_until(until, clock.now())) <= 0) return;
  // The zygote first: its message has the status.
  if (fds[1].revents & (POLLIN | POLLHUP | POLLERR)) python_.on_readable();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (fds[i + 2].revents) on_ended(ids[i], clock.now());
  }
}

void Supervisor::shut_down(const base::Clock& clock) {
  std::vector<GangId> gangs;
  for (const auto& [id, entry] : entries_) gangs.push_back(id.gang);
  for (const GangId gang : gangs) end_gang(gang);
  const auto deadline = clock.now() + kShutdownPatience;
  while (!entries_.empty() && clock.now() < deadline) wait(-1, deadline, clock);
  python_.shut_down();
}

}  // namespace trireme::engine
