#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "control/decide.h"

// Drives decide() manually: feed events, read its actions as text.

namespace trireme::control::testing {

inline const char* to_text(Timer timer) {
  switch (timer) {
    case Timer::kStart: return "start";
    case Timer::kCause: return "cause";
    case Timer::kStop: return "stop";
    case Timer::kAbort: return "abort";
    case Timer::kSilence: return "silence";
    case Timer::kPause: return "pause";
    case Timer::kResize: return "resize";
    case Timer::kPreempt: return "preempt";
  }
  return "?";
}

struct ActionText {
  std::string operator()(const ReserveGang& action) const {
    return action.optional ? fmt::format("reserve gang {}", action.gang) : "reserve";
  }
  std::string operator()(const StartProcess& action) const { return fmt::format("start {}", action.rank); }
  std::string operator()(const SendStart& action) const { return fmt::format("begin {}", action.rank); }
  std::string operator()(const SendGoodbye& action) const { return fmt::format("goodbye {}", action.rank); }
  std::string operator()(const KillProcess& action) const {
    return fmt::format("kill {} {}", action.rank, action.grace_s);
  }
  std::string operator()(const ReleaseGang& action) const {
    return action.gang == 0 ? "release" : fmt::format("release gang {}", action.gang);
  }
  std::string operator()(const SendCancel& action) const {
    return fmt::format("cancel {}{}", action.rank, action.may_decline ? " or let it end" : "");
  }
  std::string operator()(const SendLeaveAt& action) const {
    return fmt::format("leave {} at {}", action.rank, action.index);
  }
  std::string operator()(const SendPreemption& action) const {
    return fmt::format("tell that rank {} goes in {}", base::rank_list(action.ranks), action.seconds);
  }
  std::string operator()(const ArmTimer& action) const {
    return fmt::format("arm {} {}", to_text(action.timer), action.seconds);
  }
  std::string operator()(const DisarmTimer& action) const { return fmt::format("disarm {}", to_text(action.timer)); }
  std::string operator()(const Record& action) const { return action.event; }
  std::string operator()(const RecordFailure& action) const {
    return fmt::format("failure {} {}{}", action.failure.rank, action.failure.cause,
                       action.failure.collateral ? "*" : "");
  }
  std::string operator()(const Commit& action) const { return fmt::format("commit {}", action.checkpoint.name); }
  std::string operator()(const RemoveCheckpoint& action) const { return "remove " + action.name; }
  std::string operator()(const UpdateManifest& action) const { return "update " + action.checkpoint.name; }
  std::string operator()(const TellCommitted& action) const { return fmt::format("tell {}", action.index); }
  std::string operator()(const SendStop& action) const { return fmt::format("ask to stop {}", action.rank); }
  std::string operator()(const ResetAttempt& action) const {
    std::string kept;
    for (std::size_t rank = 0; rank < action.taken_over.size(); ++rank) {
      if (action.taken_over[rank] >= 0) kept += fmt::format(" {}<-{}", rank, action.taken_over[rank]);
    }
    return "reset" + kept;
  }
  std::string operator()(const SettleStorage&) const { return "settle"; }
  std::string operator()(const Finish&) const { return "finish"; }
};

// "arm start 120, start 0, ...".
inline std::string to_text(const std::vector<Action>& actions) {
  std::vector<std::string> parts;
  for (const auto& action : actions) parts.push_back(std::visit(ActionText{}, action));
  return base::join(parts, ", ");
}

struct RunMachine {
  Rules rules;
  RunState state;
  std::vector<Action> all;
  std::size_t commits_ended = 0;
  bool settles = true;  // the storage is settled as soon as it is requested

  explicit RunMachine(int num_workers = 2) { rules.num_workers = num_workers; }

  // The actions that follow from the event, as text.
  std::string on(Event event) {
    auto decision = decide(std::move(state), std::move(event), rules);
    state = std::move(decision.state);
    auto actions = std::move(decision.actions);
    const bool asked = std::any_of(actions.begin(), actions.end(),
                                   [](const Action& each) { return std::holds_alternative<SettleStorage>(each); });
    if (asked && settles) {
      const StorageSettled settled{state.attempt};
      auto then = decide(std::move(state), settled, rules);
      state = std::move(then.state);
      actions.insert(actions.end(), then.actions.begin(), then.actions.end());
    }
    all.insert(all.end(), actions.begin(), actions.end());
    return to_text(actions);
  }

  void reserve() {
    on(Begin{});
    on(GangReserved{slots(rules.least())});
    for (int gang = 1; gang <= rules.num_workers - rules.least(); ++gang) on(GangReserved{slots(1), gang});
  }
  static std::vector<engine::Slot> slots(int count) {
    return std::vector<engine::Slot>(static_cast<std::size_t>(count), engine::Slot{"node", "host", {}, {}});
  }
  void start_processes() {
    for (int rank = 0; rank < rules.num_workers; ++rank) on(ProcessStarted{rank, pid_of(rank), true});
  }
  void connect() {
    for (int rank = 0; rank < rules.num_workers; ++rank) on(Connected{rank, pid_of(rank), "host"});
  }
  // Up to the running function.
  void run() {
    reserve();
    start_processes();
    connect();
  }
  // The next attempt, up to the running function.
  void run_again() {
    start_processes();
    connect();
  }
  std::string exit_all(engine::ExitStatus status = {engine::ExitStatus::Kind::kSignal, 9}) {
    std::string last;
    for (int rank = 0; rank < rules.num_workers; ++rank) last = on(ProcessExited{rank, status});
    return last;
  }
  // The committer has finished its oldest commit.
  std::string commit_ended(std::optional<std::string> failure = std::nullopt) {
    std::size_t at = commits_ended++;
    for (const auto& action : all) {
      const auto* commit = std::get_if<Commit>(&action);
      if (commit && at-- == 0) return on(CommitEnded{commit->checkpoint, {}, std::move(failure)});
    }
    return "no commit is under way";
  }
  int pid_of(int rank) const { return 100 * (state.attempt + 1) + rank; }

  // The last recorded event of that kind.
  Dict recorded(const std::string& event) const {
    Dict found;
    for (const auto& action : all) {
      if (const auto* record = std::get_if<Record>(&action); record && record->event == event) found = record->fields;
    }
    return found;
  }
  int count(const std::string& event) const {
    int found = 0;
    for (const auto& action : all) {
      const auto* record = std::get_if<Record>(&action);
      found += record && record->event == event ? 1 : 0;
    }
    return found;
  }
};

inline ReadyCheckpoint ready_of(std::int64_t index) {
  return {index, "checkpoint_" + std::to_string(index), {}, {}, {}, {}, {}};
}

inline constexpr engine::ExitStatus kCleanExit{engine::ExitStatus::Kind::kCode, 0};
inline constexpr engine::ExitStatus kBadExit{engine::ExitStatus::Kind::kCode, 3};
inline constexpr engine::ExitStatus kKilled{engine::ExitStatus::Kind::kSignal, 9};

inline FunctionFailed raised(int rank, const std::string& message = "boom") {
  return {rank, "ValueError", message, "Traceback", Bytes{"pickle"}};
}
inline FunctionFailed peer_gone(int rank) { return raised(rank, "gloo: Connection closed by peer [127.0.0.1]:1234"); }

}  // namespace trireme::control::testing
