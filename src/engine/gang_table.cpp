#include "engine/gang_table.h"

#include <algorithm>
#include <utility>

#include "engine/resources.h"

namespace trireme::engine {
namespace {

// Other drivers do not notify us when they release room, so their reservations are polled.
constexpr std::chrono::milliseconds kRetryInterval{100};

base::MonotonicTime::duration ticks(base::Seconds seconds) {
  // An unlimited timeout would overflow; a year is equivalent.
  constexpr base::Seconds kLongest{365.0 * 24 * 3600};
  return std::chrono::duration_cast<base::MonotonicTime::duration>(std::min(seconds, kLongest));
}

}  // namespace

GangTable::GangTable(Machine& machine, std::vector<std::string> zygote_argv, const base::Clock& clock)
    : machine_(machine),
      clock_(clock),
      supervisor_(std::move(zygote_argv),
                  {.started =
                       [this](BundleId id, int pid, bool forked) {
                         tell(id.gang, Started{id.gang, id.bundle, pid, forked});
                       },
                   .start_failed =
                       [this](BundleId id, base::Error error) {
                         tell(id.gang, StartFailed{id.gang, id.bundle, std::move(error)});
                       },
                   .exited =
                       [this](BundleId id, int pid, ExitStatus status, std::string evidence) {
                         tell(id.gang, Exited{id.gang, id.bundle, pid, status, std::move(evidence)});
                       }}) {}

void GangTable::tell(GangId id, EngineEvent event) {
  const auto gang = gangs_.find(id);
  if (gang != gangs_.end() && gang->second.handler) gang->second.handler(std::move(event));
}

void GangTable::handle(Command command) {
  std::visit([this](auto& one) { run(std::move(one)); }, command);
}

void GangTable::run(command::Reserve command) {
  const auto now = clock_.now();
  Gang& gang = gangs_[command.gang];
  gang.deadline = now + ticks(command.request.timeout);
  gang.request = std::move(command.request);
  gang.handler = std::move(command.handler);
  try_reserve(command.gang, gang);
}

void GangTable::refuse(GangId id, Gang& gang, base::Error error) {
  gang.waiting = false;
  tell(id, ReserveFailed{id, std::move(error)});
}

// A gang that waits for its run's minimum. Optional workers of other runs do not take precedence.
const GangRequest* GangTable::waits_before(const GangRequest& request) const {
  const Resources wanted = sum_of(request);
  const bool cpus_declared = machine_.cpus_declared();
  for (const auto& [id, gang] : gangs_) {
    if (!gang.waiting || gang.request.optional) continue;
    for (const auto& [name, value] : sum_of(gang.request)) {
      const bool limited = name != "CPU" || cpus_declared;
      if (limited && value > 0.0 && amount_of(wanted, name) > 0.0) return &gang.request;
    }
  }
  return nullptr;
}

void GangTable::try_reserve(GangId id, Gang& gang) {
  if (gang.request.optional) {
    if (const auto* first = waits_before(gang.request)) {
      refuse(id, gang,
             base::error("no room for more workers of run \"{}\": run \"{}\" is waiting for it", gang.request.run_name,
                         first->run_name));
      return;
    }
  }
  auto answer = machine_.reserve(gang.request);
  if (!answer) {
    refuse(id, gang, std::move(answer).error());
  } else if (auto* granted = std::get_if<Machine::Granted>(&*answer)) {
    gang.waiting = false;
    gang.reservation = std::move(granted->reservation);
    gang.use = std::move(granted->use);
    gang.size = granted->slots.size();
    tell(id, Reserved{id, std::move(granted->slots)});
  } else {
    on_busy(id, gang, std::get<Machine::Busy>(*answer).why);
  }
}

void GangTable::on_busy(GangId id, Gang& gang, const std::string& why) {
  if (gang.request.optional) {
    refuse(id, gang, base::error("no room for more workers of run \"{}\": {}", gang.request.run_name, why));
    return;
  }
  const auto now = clock_.now();
  if (now >= gang.deadline) {
    refuse(id, gang,
           base::error("no room for run \"{}\" within {}: {}. Wait for these runs to end, stop one with `trireme "
                       "stop`, or declare more capacity",
                       gang.request.run_name, base::duration_text(gang.request.timeout.count()), why));
    return;
  }
  gang.next_try = now + kRetryInterval;
  if (!std::exchange(gang.said_waiting, true)) tell(id, ReserveWaiting{id, why});
}

void GangTable::run(command::Release command) {
  const auto gang = gangs_.find(command.gang);
  if (gang == gangs_.end()) {
    command.done.set_value();
    return;
  }
  gang->second.handler = nullptr;
  gang->second.waiting = false;
  gang->second.leaving = std::move(command.done);
  supervisor_.end_gang(command.gang);
  drop_released();
}

void GangTable::drop_released() {
  bool freed = false;
  for (auto gang = gangs_.begin(); gang != gangs_.end();) {
    if (!gang->second.leaving || supervisor_.has_gang(gang->first)) {
      ++gang;
      continue;
    }
    auto done = *std::move(gang->second.leaving);
    freed = freed || gang->second.reservation;
    gang = gangs_.erase(gang);
    done.set_value();
  }
  if (freed) tell_room_grew();
}

void GangTable::tell_room_grew(const std::set<GangId>& except) {
  for (auto& [id, gang] : gangs_) gang.next_try = clock_.now();
  // Gangs that wait for their minimum are served before others are notified.
  retry_waiting();
  for (const auto& [id, gang] : gangs_) {
    if (gang.use && !except.contains(id)) tell(id, RoomGrew{id});
  }
}

void GangTable::run(command::RoomGrew /*command*/) { tell_room_grew(); }

void GangTable::run(command::SetCapacity command) {
  *command.answer = set_capacity(command.asked);
  command.done.set_value();
}

Result<Resources> GangTable::set_capacity(const Capacity& asked) {
  Resources all;
  std::vector<GangId> ids;
  std::vector<Machine::Occupant> occupants;
  for (auto& [id, gang] : gangs_) {
    if (!gang.use) continue;
    add(all, gang.use->resources);
    ids.push_back(id);
    occupants.push_back({.use = *gang.use,
                         .reservation = gang.reservation,
                         .optional = gang.request.optional,
                         .leaving = gang.leaving.has_value()});
  }
  TRIREME_ASSIGN(const auto change, machine_.set_capacity(asked, occupants));
  std::set<GangId> asked_back;
  for (const std::size_t index : change.lowering.too_much) {
    asked_back.insert(ids[index]);
    tell(ids[index], Reclaim{ids[index], change.lowering.why});
  }
  if (change.grew) tell_room_grew(asked_back);
  return all;
}

void GangTable::run(command::Start command) {
  const auto gang = gangs_.find(command.gang);
  if (gang == gangs_.end() || gang->second.leaving) return;
  if (command.bundle < 0 || static_cast<std::size_t>(command.bundle) >= gang->second.size) {
    tell(command.gang, StartFailed{command.gang, command.bundle,
                                   base::error("{}: the gang has {} bundles, no bundle {}", command.spec.label,
                                               gang->second.size, command.bundle)});
    return;
  }
  if (!command.spec.visible_gpus.empty()) {
    for (auto& [name, value] : machine_.visible_variables(command.spec.visible_gpus)) {
      command.spec.env[name] = std::move(value);
    }
  }
  supervisor_.start({command.gang, command.bundle}, std::move(command.spec));
}

void GangTable::run(command::Kill command) {
  supervisor_.kill({command.gang, command.bundle}, std::min(command.grace, base::Seconds(3600.0 * 24)), clock_.now());
}

void GangTable::run(command::WarmUp command) { supervisor_.python().warm_up(command.env, command.preload, {}); }

void GangTable::retry_waiting() {
  const auto now = clock_.now();
  // In order of arrival: older gangs first.
  for (auto& [id, gang] : gangs_) {
    if (gang.waiting && std::min(gang.next_try, gang.deadline) <= now) try_reserve(id, gang);
  }
}

std::optional<base::MonotonicTime> GangTable::next_try() const {
  std::optional<base::MonotonicTime> next;
  for (const auto& [id, gang] : gangs_) {
    if (!gang.waiting) continue;
    const auto time = std::min(gang.next_try, gang.deadline);
    next = std::min(next.value_or(time), time);
  }
  return next;
}

void GangTable::turn(int wake_fd) {
  supervisor_.wait(wake_fd, next_try(), clock_);
  drop_released();
  retry_waiting();
}

void GangTable::shut_down() {
  for (auto& [id, gang] : gangs_) gang.handler = nullptr;
  supervisor_.shut_down(clock_);
  gangs_.clear();
}

}  // namespace trireme::engine
