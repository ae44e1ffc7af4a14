#include "control/failure_policy.h"

#include <doctest/doctest.h>

#include "base/check.h"

namespace failure_policy_test {

using namespace trireme;
using namespace trireme::control;

namespace {

Failure failure(int rank, const std::string& cause, const std::string& message = "", const std::string& type = "") {
  Failure made;
  made.rank = rank;
  made.cause = cause;
  made.message = message;
  made.error_type = type;
  return made;
}

const std::string kGloo =
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:40123";

const std::string kTimeout =
    "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=BROADCAST, NumelIn=234881024, "
    "NumelOut=234881024, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.";
const std::string kGlooTimeout =
    "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation "
    "to complete";
const std::string kPrefix = "[rank5]:[E623 21:21:18.895381245 ProcessGroupNCCL.cpp:2197] ";
const std::string kEnd =
    "[PG ID 0 PG GUID 0(default_pg) Rank 5] Process group watchdog thread terminated with exception: ";

}  // namespace

TEST_CASE("errors that only report a lost peer") {
  CHECK(looks_like_peer_loss(failure(0, "exception", kGloo)));
  CHECK(looks_like_peer_loss(failure(0, "exception", "[Errno 104] Connection reset by peer")));
  CHECK(looks_like_peer_loss(failure(0, "exception", "[Errno 32] Broken pipe")));
  CHECK(looks_like_peer_loss(failure(0, "exception", "NCCL error: ncclRemoteError: A call failed")));
  CHECK(looks_like_peer_loss(failure(0, "lost", "its connection was lost")));
  CHECK(looks_like_peer_loss(failure(0, "exception", "NCCL communicator was aborted on rank 1.")));
  CHECK(looks_like_peer_loss(failure(0, "exception", kTimeout)));
  CHECK(looks_like_peer_loss(failure(0, "exception", kGlooTimeout)));
  CHECK(looks_like_peer_loss(failure(0, "watchdog", "ncclRemoteError")));
  CHECK(is_loss_in_collective(failure(0, "exception", "Horovod has been shut down. This was caused by an exception")));
  CHECK_FALSE(looks_like_peer_loss(failure(0, "exception", "boom")));
  CHECK_FALSE(looks_like_peer_loss(failure(0, "signal", "Broken pipe")));
  CHECK_FALSE(looks_like_peer_loss(failure(0, "exit", kGloo)));
  CHECK_FALSE(looks_like_peer_loss(failure(0, "start", kGloo)));
}

TEST_CASE("the root cause") {
  struct Row {
    std::vector<Failure> failures;
    std::size_t root;
  };
  for (const Row& row : {
           Row{{failure(0, "exception", "boom")}, 0}, Row{{failure(0, "exception", kGloo), failure(1, "signal")}, 1},
           Row{{failure(0, "exception", kGloo), failure(1, "lost"), failure(2, "exit")}, 2},
           Row{{failure(0, "exception", kGloo), failure(1, "lost")}, 1},
           Row{{failure(0, "lost"), failure(1, "exception", "boom")}, 1},
           Row{{failure(3, "exception", "a"), failure(1, "exception", "b")}, 0},
           Row{{failure(3, "exception", "a"), failure(1, "signal")}, 0},
           Row{{failure(3, "lost"), failure(1, "start")}, 1},
           Row{{failure(3, "exception", kGloo), failure(1, "exception", kGloo)}, 0},
           Row{{failure(0, "watchdog", kTimeout), failure(1, "lost")}, 1},
           Row{{failure(0, "watchdog", "ncclRemoteError"), failure(1, "lost")}, 1},
           Row{{failure(0, "watchdog", kTimeout), failure(2, "watchdog", kTimeout), failure(1, "signal")}, 2},
           Row{{failure(0, "watchdog", kTimeout), failure(1, "out_of_memory")}, 1},
           Row{{failure(0, "exception", kGlooTimeout), failure(1, "exception", "boom")}, 1},
           Row{{failure(0, "lost"), failure(1, "signal")}, 1},  // an abort of its own
       }) {
    CHECK(root_cause(row.failures) == row.root);
  }
  CHECK_THROWS_AS(root_cause({}), base::BrokenInvariant);
}

TEST_CASE("what NCCL's watchdog prints before it ends a process because of another rank") {
  const std::string stack = "\nException raised from checkTimeout at ProcessGroupNCCL.cpp:760\nframe #0: c10::Error\n";
  const std::string jax = "Terminating process because the JAX distributed service detected fatal errors. This most";
  CHECK(watchdog_line("F1119 04:32:08.974302   24893 client.h:80] " + jax + "\n:UNKNOWN:Error received") == jax);
  CHECK(watchdog_line("") == "");
  CHECK(watchdog_line("step 1\nWatchdog\nfree(): invalid pointer\n") == "");
  CHECK(watchdog_line(kPrefix + kTimeout + "\nstep 2") == kPrefix + kTimeout);
  CHECK(watchdog_line(kPrefix + kTimeout + stack + kPrefix + kEnd + kTimeout + stack) == kTimeout);
  CHECK(watchdog_line("terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  " + kEnd +
                      kTimeout + stack) == kTimeout);
  const std::string remote = "NCCL error: remote process exited or there was a network error, NCCL version 2.27.5";
  CHECK(watchdog_line(kPrefix + kEnd + remote + stack) == remote);
  const std::string signal = "Observed flight recorder dump signal from another rank via TCPStore.";
  CHECK(watchdog_line(kPrefix + signal) == kPrefix + signal);
  // Its own device failed: this rank is the cause, whatever it printed before.
  for (const std::string own : {"an illegal memory access was encountered", "device-side assert triggered"}) {
    CHECK(watchdog_line(kPrefix + kTimeout + "\n" + kPrefix + kEnd + "CUDA error: " + own + stack) == "");
  }
}

TEST_CASE("a collective that timed out") {
  CHECK(is_collective_timeout(failure(0, "watchdog", kTimeout)));
  CHECK(is_collective_timeout(failure(0, "exception", kGlooTimeout)));
  CHECK_FALSE(is_collective_timeout(failure(0, "watchdog", "NCCL error: remote process exited")));
  CHECK_FALSE(is_collective_timeout(failure(0, "exception", kGloo)));
  CHECK_FALSE(is_collective_timeout(failure(0, "signal", kTimeout)));
}

TEST_CASE("texts without their numbers") {
  CHECK(without_numbers("") == "");
  CHECK(without_numbers("boom") == "boom");
  CHECK(without_numbers("7") == "#");
  CHECK(without_numbers("at 0x7f3aBc, 12 of 3.50 GiB.") == "at #, # of # GiB.");
  CHECK(without_numbers("v1.2.3 a1b 5.") == "v# a#b #.");
  CHECK(without_numbers("0x") == "#");
}

TEST_CASE("in order of blame") {
  CHECK(in_order_of_blame({}).empty());
  auto ordered = in_order_of_blame({failure(0, "exception", kGloo), failure(1, "exception", "late but own"),
                                    failure(2, "signal"), failure(3, "exception", kGloo)});
  REQUIRE(ordered.size() == 4);
  CHECK(ordered[0].rank == 1);
  CHECK_FALSE(ordered[0].collateral);
  CHECK(ordered[1].rank == 0);
  CHECK(ordered[1].collateral);
  CHECK(ordered[2].rank == 2);
  CHECK_FALSE(ordered[2].collateral);
  CHECK(ordered[3].collateral);
  // Without a better explanation the first one is the root cause.
  ordered = in_order_of_blame({failure(0, "exception", kGloo), failure(1, "exception", kGloo)});
  CHECK_FALSE(ordered[0].collateral);
  CHECK(ordered[1].collateral);
}

TEST_CASE("one line with the rank and the error") {
  Failure told = failure(1, "exception", "boom\nsecond line", "ValueError");
  CHECK(headline(told) == "rank 1 failed: ValueError: boom");
  told.pid = 4711;
  told.host = "a";
  CHECK(headline(told) == "rank 1 (pid 4711, host a) failed: ValueError: boom");
  told.message = "";
  CHECK(headline(told) == "rank 1 (pid 4711, host a) failed: ValueError");
  told.error_type = "";
  told.message = "boom";
  CHECK(headline(told) == "rank 1 (pid 4711, host a) failed: boom");
}

TEST_CASE("budgets") {
  CHECK_FALSE(within_budget(0, 0));
  CHECK(within_budget(0, 1));
  CHECK_FALSE(within_budget(1, 1));
  CHECK(within_budget(1'000'000, -1));
}

TEST_CASE("as in the event log: without the data that only Python can read") {
  Failure made = failure(2, "exception", "boom", "ValueError");
  made.pid = 7;
  made.host = "a";
  made.traceback = "Traceback";
  made.exception = Bytes{"pickle"};
  made.log_tail = {"last", "words"};
  made.collateral = true;
  CHECK(to_dict(made) == Dict{{"rank", 2},
                              {"pid", 7},
                              {"host", "a"},
                              {"cause", "exception"},
                              {"error_type", "ValueError"},
                              {"message", "boom"},
                              {"traceback", "Traceback"},
                              {"log_tail", List{"last", "words"}},
                              {"collateral", true}});
}

TEST_CASE("the waits of a deadlock") {
  CHECK(deadlock_message({{0, {.keys = {"a"}}}, {1, {.keys = {"b"}}}, {2, {.keys = {"a"}}}}, {}) ==
        "every rank waits, and no rank can make progress: rank 0,2 for store key a; rank 1 for store key b");
  CHECK(deadlock_message({{0, {.keys = {"a", "b", "c", "d", "e"}, .collectives = 1}}, {2, {.collectives = 1}}}, {1}) ==
        "every rank waits, and no rank can make progress: rank 0 for store key a, b, c and 2 more and in a barrier or "
        "broadcast; rank 2 in a barrier or broadcast; rank 1 has returned from the training function");
  std::map<int, RankWait> many;
  for (int rank = 0; rank < 9; ++rank) many[rank].keys = {std::to_string(rank)};
  CHECK(deadlock_message(many, {}).ends_with("rank 5 for store key 5; and 3 groups more"));
}

TEST_CASE("losses that only another rank can have caused") {
  CHECK(is_loss_in_collective(failure(0, "exception", kGloo)));
  CHECK(is_loss_in_collective(failure(0, "exception", "NCCL error in nccl.cpp: ncclRemoteError: A call failed")));
  CHECK_FALSE(is_loss_in_collective(failure(0, "exception", "[Errno 104] Connection reset by peer")));
  CHECK_FALSE(is_loss_in_collective(failure(0, "lost", kGloo)));
  CHECK(returned_early_message({1, 2}, 0).starts_with(
      "ranks 1-2 returned from the training function while rank 0 waited for them in a collective"));
}

}  // namespace failure_policy_test
