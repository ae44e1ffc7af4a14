#include <doctest/doctest.h>

#include "control/decide.h"
#include "unit/control/run_machine.h"

namespace decide_restart_test {

// Restarts in which survivors keep their process, and what limits restarts.

using namespace trireme;
using namespace trireme::control;
using namespace trireme::control::testing;

namespace {

RunMachine warm(int num_workers = 3) {
  RunMachine machine(num_workers);
  machine.rules.warm_restart = true;
  machine.rules.max_failures = -1;
  machine.run();
  return machine;
}

void kill_rank(RunMachine& machine, int rank) {
  machine.on(ProcessExited{rank, kKilled});
  machine.on(ConnectionLost{rank, "closed"});
}

void fail_with(RunMachine& machine, const FunctionFailed& failed) {
  machine.on(failed);
  machine.on(TimerFired{Timer::kCause});
}

}  // namespace

TEST_CASE("survivors are cancelled and only the dead rank is replaced") {
  RunMachine machine = warm();
  kill_rank(machine, 1);
  machine.on(peer_gone(0));
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 1 signal, failure 0 exception*, attempt_failed, cancel 0, cancel 2, disarm start, disarm cause, "
        "arm stop 5");
  CHECK(machine.on(BecameReady{2}) == "");
  // An exception of a cancelled function is not a failure.
  CHECK(machine.on(peer_gone(2)) == "");
  CHECK(machine.on(BecameReady{0}) ==
        "disarm stop, attempt_started, reset 0<-0 2<-2, worker_kept, start 1, worker_kept, settle, arm start 120");
  CHECK(machine.recorded("attempt_started") == Dict{{"attempt", 1}, {"num_workers", 3}, {"kept", 2}});
  machine.on(ProcessStarted{1, 201, true});
  CHECK(machine.on(Connected{1, 201, "host"}) ==
        "worker_connected, disarm start, begin 0, begin 1, begin 2, training_started");
  CHECK(machine.state.failures_used == 1);
}

TEST_CASE("auto keeps the processes that hold something expensive") {
  RunMachine machine(3);
  machine.rules.warm_restart = {};
  machine.rules.max_failures = -1;
  machine.run();
  machine.on(FunctionEntered{0});
  machine.on(FunctionEntered{1, "a CUDA context"});
  machine.on(FunctionEntered{2, "a CUDA context"});
  kill_rank(machine, 1);
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 1 signal, attempt_failed, cancel 2 or let it end, disarm start, disarm cause, arm stop 5, "
        "arm abort 2.5");
  CHECK(machine.on(CollectivesAborted{2}) == "kill 0 0, disarm abort");
  machine.on(ProcessExited{0, kKilled});
  SUBCASE("and knows in the next attempt what a kept one holds") {
    CHECK(machine.on(BecameReady{2}) ==
          "disarm stop, attempt_started, reset 2<-2, start 0, start 1, worker_kept, settle, arm start 120");
    CHECK(machine.state.workers[2].holds == "a CUDA context");
    CHECK(machine.state.workers[1].holds == "");
  }
  SUBCASE("unless one of them exits instead") {
    machine.on(ConnectionLost{2, "closed"});
    CHECK(machine.on(ProcessExited{2, kCleanExit}) ==
          "disarm stop, attempt_started, reset, start 0, start 1, start 2, settle, arm start 120");
    CHECK(machine.state.failures_used == 1);
  }
}

TEST_CASE("auto keeps workers that have not received a function yet") {
  RunMachine machine(2);
  machine.rules.warm_restart = {};
  machine.reserve();
  machine.start_processes();
  machine.on(Connected{0, 100, "host"});
  machine.on(ProcessExited{1, kBadExit});
  CHECK(machine.on(TimerFired{Timer::kCause}).find("cancel 0 or let it end") != std::string::npos);
  CHECK(machine.on(BecameReady{0}).find("reset 0<-0") != std::string::npos);
}

TEST_CASE("a rank whose own code failed is replaced, although it is alive") {
  RunMachine machine = warm(2);
  machine.on(raised(0));
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 0 exception, attempt_failed, cancel 1, disarm start, disarm cause, arm stop 5, arm abort 2.5");
  CHECK(machine.on(BecameReady{1}) == "kill 0 0, disarm abort");
  CHECK(machine.on(ProcessExited{0, kKilled}) ==
        "disarm stop, attempt_started, reset 1<-1, start 0, worker_kept, settle, arm start 120");
}

// Its memory is freed when it ends, and the others may still read it.
TEST_CASE("a process that is replaced is killed after the others have aborted their collectives") {
  for (const bool hung : {true, false}) {
    CAPTURE(hung);
    RunMachine machine = warm(4);
    machine.rules.on_hang = "restart";
    if (hung) {
      machine.on(HangNoticed{1, "rank 1 is behind", "stacks"});
    } else {
      machine.on(raised(1));
    }
    CHECK(machine.on(TimerFired{Timer::kCause}).find("cancel 0, cancel 2, cancel 3, disarm") != std::string::npos);
    CHECK(machine.on(CollectivesAborted{0}) == "");
    CHECK(machine.on(CollectivesAborted{0}) == "");
    struct Row {
      const char* what;
      Event event;
      const char* actions;
    };
    const auto before = machine;
    for (const Row& row : {Row{"aborted", CollectivesAborted{3}, "kill 1 0, disarm abort"},
                           Row{"ready", BecameReady{3}, "kill 1 0, disarm abort"},
                           Row{"ended", ProcessExited{3, kKilled}, "kill 1 0, disarm abort"},
                           Row{"lost", ConnectionLost{3, "closed"}, "kill 3 0, kill 1 0, disarm abort"},
                           Row{"too late", TimerFired{Timer::kAbort}, "kill 1 0, disarm abort"},
                           Row{"much too late", TimerFired{Timer::kStop}, "kill 0 0, kill 1 0, kill 3 0"},
                           Row{"a hard stop", StopRequested{"Ctrl-C", true},
                               "stop_requested, kill 0 0, kill 1 0, kill 2 0, kill 3 0, disarm start, disarm cause, "
                               "arm stop 5"}}) {
      CAPTURE(row.what);
      machine = before;
      machine.on(BecameReady{2});
      CHECK(machine.on(row.event) == row.actions);
      CHECK(machine.on(TimerFired{Timer::kAbort}) == "");
    }
  }
}

TEST_CASE("nobody waits for a process that has already ended") {
  RunMachine machine = warm(2);
  machine.on(raised(0));
  machine.on(TimerFired{Timer::kCause});
  machine.on(ProcessExited{0, kCleanExit});
  CHECK(machine.on(CollectivesAborted{1}) == "");
  CHECK(machine.on(BecameReady{1}) ==
        "disarm stop, attempt_started, reset 1<-1, start 0, worker_kept, settle, arm start 120");
  // The timer of the last attempt.
  CHECK(machine.on(TimerFired{Timer::kAbort}) == "");
}

TEST_CASE("a worker that is not ready in time is replaced too") {
  RunMachine machine = warm();
  kill_rank(machine, 1);
  machine.on(TimerFired{Timer::kCause});
  machine.on(BecameReady{0});
  CHECK(machine.on(TimerFired{Timer::kStop}) == "kill 2 0");
  CHECK(machine.on(ProcessExited{2, kKilled}) ==
        "disarm stop, attempt_started, reset 0<-0, worker_kept, start 1, start 2, settle, arm start 120");
}

TEST_CASE("a worker that fails before or after it became ready is replaced") {
  RunMachine machine = warm();
  kill_rank(machine, 1);
  machine.on(TimerFired{Timer::kCause});
  machine.on(BecameReady{0});
  CHECK(machine.on(ConnectionLost{0, "closed"}) == "kill 0 0");
  machine.on(ProcessExited{0, kKilled});
  CHECK(machine.on(ConnectionLost{2, "no heartbeat"}) == "kill 2 0");
  CHECK(machine.on(ProcessExited{2, kKilled}) ==
        "disarm stop, attempt_started, reset, start 0, start 1, start 2, settle, arm start 120");
}

TEST_CASE("a rank that had finished takes part again") {
  RunMachine machine = warm(2);
  machine.on(FunctionReturned{0, {"value"}});
  kill_rank(machine, 1);
  CHECK(machine.on(TimerFired{Timer::kCause}) ==
        "failure 1 signal, attempt_failed, cancel 0, disarm start, disarm cause, arm stop 5");
}

TEST_CASE("a stop while workers become ready ends all of them") {
  RunMachine machine = warm();
  kill_rank(machine, 1);
  machine.on(TimerFired{Timer::kCause});
  machine.on(BecameReady{0});
  CHECK(machine.on(StopRequested{"Ctrl-C"}) ==
        "stop_requested, kill 0 5, kill 2 5, disarm start, disarm cause, arm stop 5");
  machine.on(ProcessExited{0, kKilled});
  CHECK(machine.on(BecameReady{2}) == "");
  CHECK(machine.on(ProcessExited{2, kKilled}) == "disarm stop, release, run_finished, finish");
}

TEST_CASE("restarts without progress wait longer and longer; progress resets the wait") {
  RunMachine machine(1);
  machine.rules.max_failures = -1;
  machine.rules.backoff_s = 1;
  machine.rules.max_backoff_s = 3;
  machine.run();
  auto crash = [&] {
    kill_rank(machine, 0);
    return machine.on(TimerFired{Timer::kCause});
  };
  constexpr const char* kVerdict =
      "failure 0 signal, attempt_failed, disarm start, disarm cause, arm stop 5, disarm stop, ";
  constexpr const char* kStart = "attempt_started, reset, start 0, settle, arm start 120";
  CHECK(crash() == std::string(kVerdict) + kStart);
  for (const char* pause : {"1", "2", "3", "3"}) {
    machine.run_again();
    CHECK(crash() == std::string(kVerdict) + "pausing, arm pause " + pause);
    CHECK(machine.on(TimerFired{Timer::kPause}) == std::string("disarm stop, ") + kStart);
  }
  machine.run_again();
  machine.on(Reported{0, 0, {}, std::nullopt});
  CHECK(crash() == std::string(kVerdict) + kStart);
  // Repeating the same report is not progress.
  machine.run_again();
  machine.on(Reported{0, 0, {}, std::nullopt});
  CHECK(crash() == std::string(kVerdict) + "pausing, arm pause 1");
  SUBCASE("a stop does not wait for the pause") {
    CHECK(machine.on(StopRequested{"Ctrl-C"}) ==
          "stop_requested, disarm start, disarm cause, arm stop 5, disarm stop, release, run_finished, finish");
  }
}

TEST_CASE("the same error at the same report, three times") {
  RunMachine machine(1);
  machine.rules.max_failures = -1;
  machine.rules.repeated_error_limit = 3;
  machine.run();
  auto attempt = [&](const std::string& message) {
    fail_with(machine, raised(0, message));
    const std::string next = machine.recorded("attempt_failed")["next"].as_string();
    machine.exit_all();
    machine.run_again();
    return next;
  };
  SUBCASE("ends the run") {
    CHECK(attempt("boom") == "restart");
    CHECK(attempt("boom") == "restart");
    CHECK(attempt("boom") == "fail");
    CHECK(machine.state.error.find("the same error 3 times in a row at report 0") != std::string::npos);
  }
  SUBCASE("also if its numbers change, as in CUDA's out-of-memory error") {
    auto text = [](int pid, const std::string& free) {
      return fmt::format(
          "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which {} MiB is "
          "free. Process {} has 78.50 GiB memory in use.",
          free, pid);
    };
    CHECK(attempt(text(4711, "1023.25")) == "restart");
    CHECK(attempt(text(4712, "1021.5")) == "restart");
    CHECK(attempt(text(98, "990")) == "fail");
    CHECK(machine.state.error.find("Process 98 has") != std::string::npos);
  }
  SUBCASE("another error in between resets the count") {
    CHECK(attempt("boom") == "restart");
    CHECK(attempt("boom") == "restart");
    CHECK(attempt("bang") == "restart");
    CHECK(attempt("boom") == "restart");
  }
  SUBCASE("at another report it is a different error") {
    CHECK(attempt("boom") == "restart");
    CHECK(attempt("boom") == "restart");
    machine.on(Reported{0, 0, {}, std::nullopt});
    CHECK(attempt("boom") == "restart");
  }
}

TEST_CASE("killed for lack of memory") {
  RunMachine machine(1);
  machine.run();
  machine.on(ProcessExited{0, kKilled, "oom_kill of its cgroup rose from 0 to 1"});
  machine.on(ConnectionLost{0, "closed"});
  CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 out_of_memory, attempt_failed"));
  CHECK(machine.state.error.find("OutOfMemory: the kernel killed the process because memory ran out: oom_kill of") !=
        std::string::npos);
}

namespace {

constexpr engine::ExitStatus kAborted{engine::ExitStatus::Kind::kSignal, 6};
const std::string kWatchdogTimeout =
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)";

void abort_rank(RunMachine& machine, int rank, const std::string& watchdog) {
  machine.on(ProcessExited{rank, kAborted, "", "", watchdog});
  machine.on(ConnectionLost{rank, "closed"});
}

}  // namespace

TEST_CASE("a lost rank comes before ranks that NCCL's watchdog ended") {
  const std::string remote = "NCCL error: remote process exited or there was a network error, ncclRemoteError";
  for (const std::string& watchdog : {remote, kWatchdogTimeout}) {
    CAPTURE(watchdog);
    RunMachine machine = warm(3);
    abort_rank(machine, 0, watchdog);
    machine.on(ConnectionLost{1, "no heartbeat for 1.9 s"});
    abort_rank(machine, 2, watchdog);
    CHECK(machine.on(TimerFired{Timer::kCause})
              .starts_with("failure 1 lost, failure 0 watchdog*, failure 2 watchdog*, attempt_failed"));
    CHECK(machine.state.failures[1].message == "NCCL's watchdog ended the process: " + watchdog);
  }
  // An abort that the watchdog does not explain is a cause.
  RunMachine machine = warm(2);
  abort_rank(machine, 0, "");
  machine.on(ConnectionLost{1, "no heartbeat for 1.9 s"});
  CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 signal, failure 1 lost*, attempt_failed"));
}

TEST_CASE("a process that died comes before ranks that NCCL's watchdog ended") {
  RunMachine machine = warm(2);
  abort_rank(machine, 0, kWatchdogTimeout);
  kill_rank(machine, 1);
  CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 1 signal, failure 0 watchdog*, attempt_failed"));
}

TEST_CASE("a process that died comes before ranks that JAX ended because of it") {
  RunMachine machine = warm(3);  // the next attempt waits for rank 2, so the failures can be read
  abort_rank(machine, 1, "Terminating process because the JAX distributed service detected fatal errors. absl::Status");
  kill_rank(machine, 0);
  CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 signal, failure 1 watchdog*, attempt_failed"));
  CHECK(machine.state.failures[1].message.starts_with("JAX's coordination service ended the process: Terminating"));
}

TEST_CASE("if collectives time out, the cause is a rank that did not take part") {
  RunMachine machine = warm(4);
  SUBCASE("the stacks show its place") {
    const std::string loss = "train.py:30 in step";
    machine.on(StacksTaken{{{loss, loss, "train.py:12 in load", loss}, "rank 2 is in load", "/run/stacks/1.txt"}});
    abort_rank(machine, 3, kWatchdogTimeout);
    abort_rank(machine, 0, kWatchdogTimeout);
    // Rank 1 waits where the others do: its watchdog is only slower.
    CHECK(machine.on(TimerFired{Timer::kCause})
              .starts_with("failure 2 hang, failure 3 watchdog*, failure 0 watchdog*, attempt_failed"));
    CHECK(machine.state.workers[2].phase == WorkerPhase::kFailed);  // it is not kept
    CHECK(machine.state.failures.front().message ==
          "rank 0,3 waited in a collective until its timeout, and this rank did not take part: in train.py:12 in load; "
          "before that: rank 2 is in load; all stacks: /run/stacks/1.txt");
  }
  SUBCASE("without stacks: ranks that did not time out") {
    for (int rank : {0, 1}) abort_rank(machine, rank, kWatchdogTimeout);
    CHECK(machine.on(TimerFired{Timer::kCause})
              .starts_with("failure 2 hang, failure 0 watchdog*, failure 1 watchdog*, attempt_failed"));
    CHECK(machine.state.failures.front().message ==
          "rank 0-1 waited in a collective until its timeout, and ranks 2-3 did not take part");
  }
  SUBCASE("all ranks timed out, in different collectives") {
    machine.rules.max_failures = 0;
    machine.on(StacksTaken{{{"a", "a", "b", "b"}, "ranks 0-1 are in a", "/run/stacks/1.txt"}});
    for (int rank : {1, 0, 2, 3}) abort_rank(machine, rank, kWatchdogTimeout);
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 1 watchdog, failure 0 watchdog*, "));
    CHECK(machine.state.failures.front().message.ends_with("ranks 0-1 are in a; all stacks: /run/stacks/1.txt"));
  }
  SUBCASE("an exception of gloo") {
    machine.on(FunctionFailed{0,
                              "RuntimeError",
                              "[gloo/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation to complete",
                              "",
                              {}});
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 1 hang, failure 0 exception*, attempt_failed"));
  }
  SUBCASE("a rank that returned is the cause, not one that still works") {
    machine.on(FunctionReturned{2, {}});
    abort_rank(machine, 0, kWatchdogTimeout);
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 2 returned, failure 0 watchdog*, attempt_failed"));
  }
}

TEST_CASE("stacks are outdated after a report, and in the next attempt") {
  RunMachine machine = warm(1);
  machine.on(StacksTaken{{{"a"}, "rank 0 is in a", "/run/stacks/1.txt"}});
  machine.on(Reported{0, 0, {}, std::nullopt});
  CHECK_FALSE(machine.state.stacks.has_value());
  machine.on(StacksTaken{{{"a"}, "rank 0 is in a", "/run/stacks/1.txt"}});
  CHECK(machine.state.stacks.has_value());
  kill_rank(machine, 0);
  machine.on(TimerFired{Timer::kCause});
  CHECK_FALSE(machine.state.stacks.has_value());
}

TEST_CASE("a log without space is reported") {
  RunMachine machine(1);
  machine.run();
  machine.on(ProcessExited{0, kCleanExit, "", "/r/logs/attempt_0/rank_0.log"});
  machine.on(ConnectionLost{0, "closed"});
  machine.on(TimerFired{Timer::kCause});
  CHECK(machine.state.error.find("no space is left for its log, /r/logs/attempt_0/rank_0.log") != std::string::npos);
}

TEST_CASE("a hang is reported, restarted or fails the run, as configured") {
  for (const std::string on_hang : {"warn", "restart", "fail"}) {
    CAPTURE(on_hang);
    RunMachine machine = warm(2);
    machine.rules.on_hang = on_hang;
    const std::string first = machine.on(HangNoticed{1, "rank 1 is behind", "/run/stacks/1.txt"});
    CHECK(first == (on_hang == "warn" ? "hang_detected" : "hang_detected, arm cause 0.02"));
    machine.on(TimerFired{Timer::kCause});
    CHECK(machine.state.phase == (on_hang == "warn" ? Phase::kRunning : Phase::kStopping));
    CHECK(machine.state.next == (on_hang == "warn"      ? Next::kNone
                                 : on_hang == "restart" ? Next::kRestart
                                                        : Next::kFinish));
    if (on_hang != "warn") CHECK(machine.state.failures.front().cause == "hang");
  }
}

TEST_CASE("no process is kept after a deadlock") {
  RunMachine machine = warm(2);
  CHECK(machine.on(DeadlockFound{{{0, {.keys = {"a"}}}, {1, {.keys = {"b"}}}}}) == "arm cause 0.02");
  const std::string verdict = machine.on(TimerFired{Timer::kCause});
  CHECK(verdict.starts_with("failure 0 deadlock, attempt_failed, kill 0 0, kill 1 0"));
  CHECK(machine.state.next == Next::kRestart);
  CHECK(machine.state.failures.front().message ==
        "every rank waits, and no rank can make progress: rank 0 for store key a; rank 1 for store key b");
  // Too late: the attempt has already failed.
  CHECK(machine.on(DeadlockFound{{{0, {.keys = {"a"}}}}}) == "");
}

TEST_CASE("a rank that returned is the cause if another rank that waits for it in a collective sees a loss") {
  const std::string gloo = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer";
  RunMachine machine = warm(3);
  SUBCASE("one") {
    machine.on(FunctionReturned{1, {}});
    machine.on(FunctionFailed{0, "RuntimeError", gloo, "Traceback", {}});
    machine.on(FunctionFailed{2, "RuntimeError", gloo, "Traceback", {}});
    CHECK(machine.on(TimerFired{Timer::kCause})
              .starts_with("failure 1 returned, failure 0 exception*, failure 2 exception*, attempt_failed"));
    CHECK(machine.state.failures.front().message ==
          "it returned from the training function while rank 0 waited for it in a collective; every rank must call the "
          "same collectives the same number of times");
  }
  SUBCASE("unless another rank failed for its own reason") {
    machine.on(FunctionReturned{1, {}});
    machine.on(FunctionFailed{0, "RuntimeError", gloo, "Traceback", {}});
    machine.on(FunctionFailed{2, "ValueError", "boom", "Traceback", {}});
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 2 exception, failure 0 exception*,"));
  }
  SUBCASE("or the lost peer is not a rank") {
    machine.on(FunctionReturned{1, {}});
    machine.on(FunctionFailed{0, "ConnectionResetError", "[Errno 104] Connection reset by peer", "Traceback", {}});
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 exception, attempt_failed"));
  }
}

TEST_CASE("an error of many ranks is reported once") {
  RunMachine machine = warm(4);
  machine.on(FunctionFailed{2, "ValueError", "boom", "Traceback", {}});
  machine.on(FunctionFailed{0, "ValueError", "bang", "Traceback", {}});
  machine.on(FunctionFailed{3, "ValueError", "boom", "Traceback", {}});
  machine.on(FunctionFailed{1, "ValueError", "boom", "Traceback", {}});
  machine.on(TimerFired{Timer::kCause});
  std::vector<std::string> told;
  for (const auto& action : machine.all) {
    const auto* failed = std::get_if<RecordFailure>(&action);
    if (!failed) continue;
    told.push_back(
        fmt::format("{} [{}] {}", failed->failure.rank, fmt::join(failed->alike, ","), failed->same_as.value_or(-1)));
  }
  CHECK(told == std::vector<std::string>{"2 [3,1] -1", "0 [] -1", "3 [] 2", "1 [] 2"});
}

TEST_CASE("if a rank fails twice, the more informative failure is reported") {
  RunMachine machine = warm(2);
  machine.on(Reported{0, 0, {}, "c0"});
  SUBCASE("the exception raised by its upload") {
    CHECK(machine.on(Uploaded{0, 0, "no space"}) == "arm cause 0.5");
    CHECK(machine.on(FunctionFailed{0, "OSError", "no space", "Traceback", {}}) == "arm cause 0.02");
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 exception, attempt_failed"));
    CHECK(machine.state.failures.front().error_type == "OSError");
  }
  SUBCASE("even if the upload failure is reported after it") {
    machine.on(FunctionFailed{0, "OSError", "no space", "Traceback", {}});
    machine.on(Uploaded{0, 0, "no space"});
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 exception, attempt_failed"));
    CHECK(machine.state.failures.front().error_type == "OSError");
  }
  SUBCASE("the upload failure alone if the function ignores it") {
    machine.on(Uploaded{0, 0, "no space"});
    CHECK(machine.on(TimerFired{Timer::kCause}).starts_with("failure 0 exception, attempt_failed"));
    CHECK(machine.state.failures.front().error_type == "UploadError");
  }
  CHECK(machine.state.failures.size() == 1);
}

}  // namespace decide_restart_test
