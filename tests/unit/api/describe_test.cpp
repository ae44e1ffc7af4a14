#include "api/describe.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace describe_test {

using trireme::Dict;
using trireme::List;
using trireme::Value;
using trireme::api::describe;
using trireme::api::first_metric_rows;
using trireme::api::metric_rows;
using trireme::api::metrics_text;
using trireme::api::result_table;
using trireme::api::shortened;

TEST_CASE("events that matter are described in one line") {
  struct Case {
    Dict event;
    std::string line;
  };
  const Case cases[] = {
      {{{"event", "run_started"},
        {"name", "digits"},
        {"num_workers", 4},
        {"host", "a"},
        {"path", "/r/digits"},
        {"resumed", false}},
       "trireme run digits: 4 workers on a, folder /r/digits"},
      {{{"event", "run_started"},
        {"name", "digits"},
        {"num_workers", 1},
        {"host", "a"},
        {"path", "/r/digits"},
        {"resumed", true}},
       "trireme run digits (continued): 1 worker on a, folder /r/digits"},
      {{{"event", "run_started"},
        {"name", "digits"},
        {"num_workers", 2},
        {"host", "a"},
        {"path", "/r/digits"},
        {"resumed", true},
        {"checkpoint", "/r/digits/checkpoint_000004"}},
       "trireme run digits (continued from checkpoint_000004): 2 workers on a, folder /r/digits"},
      {{{"event", "run_started"},
        {"name", "digits"},
        {"num_workers", 2},
        {"host", "a"},
        {"path", "/local/digits"},
        {"resumed", false},
        {"checkpoint", "/given/best"},
        {"storage", "s3://bucket/digits"}},
       "trireme run digits (from best): 2 workers on a, folder /local/digits, storage s3://bucket/digits"},
      {{{"event", "training_started"}, {"attempt", 0}, {"num_workers", 4}, {"seconds", 0.4123}},
       "4 workers running after 0.41 s"},
      {{{"event", "training_started"}, {"attempt", 2}, {"num_workers", 4}, {"seconds", 0.05}},
       "attempt 2: 4 workers running after 0.05 s"},
      {{{"event", "checkpoint_committed"}, {"name", "checkpoint_000012"}}, "checkpoint_000012 committed"},
      {{{"event", "checkpoint_committed"},
        {"name", "checkpoint_000012"},
        {"metrics", Dict{{"loss", 0.25}, {"epoch", 3}}}},
       "checkpoint_000012 committed (loss 0.25, epoch 3)"},
      {{{"event", "checkpoint_validated"},
        {"name", "checkpoint_000012"},
        {"status", "VALIDATED"},
        {"metrics", Dict{{"acc", 0.5}}}},
       "checkpoint_000012 validated (acc 0.5)"},
      {{{"event", "checkpoint_validated"}, {"name", "checkpoint_000012"}, {"status", "VALIDATION_TIMEOUT"}},
       "warning: checkpoint_000012 was not validated: timed out"},
      {{{"event", "checkpoint_validated"},
        {"name", "checkpoint_000012"},
        {"status", "VALIDATION_FAILED"},
        {"message", "ValueError: boom\nTraceback"}},
       "warning: checkpoint_000012 was not validated: ValueError: boom"},
      {{{"event", "worker_failed"},
        {"rank", 1},
        {"pid", 4711},
        {"host", "a"},
        {"error_type", "ValueError"},
        {"message", "boom\nmore"}},
       "rank 1 (pid 4711, host a) failed: ValueError: boom"},
      {{{"event", "worker_failed"}, {"rank", 1}, {"pid", 4711}, {"host", "a"}, {"message", "signal SIGKILL (9)"}},
       "rank 1 (pid 4711, host a) failed: signal SIGKILL (9)"},
      {{{"event", "worker_failed"}, {"rank", 1}, {"message", "could not be started"}},
       "rank 1 failed: could not be started"},
      {{{"event", "attempt_failed"}, {"attempt", 0}, {"next", "restart"}, {"failures", 1}, {"max_failures", 3}},
       "attempt 0 failed (1 of 3 failures used); restarting"},
      {{{"event", "attempt_failed"}, {"attempt", 7}, {"next", "restart"}, {"failures", 8}, {"max_failures", -1}},
       "attempt 7 failed (failure 8, no limit); restarting"},
      {{{"event", "attempt_failed"}, {"attempt", 3}, {"next", "fail"}, {"failures", 4}, {"max_failures", 3}},
       "attempt 3 failed; max_failures = 3 is used up"},
      {{{"event", "attempt_failed"},
        {"attempt", 3},
        {"next", "fail"},
        {"failures", 2},
        {"max_failures", 1},
        {"budget", "max_preemption_failures"}},
       "attempt 3 failed; max_preemption_failures = 1 is used up"},
      {{{"event", "restarted"},
        {"kind", "warm"},
        {"seconds", 0.1623},
        {"kept", 2},
        {"replaced", 1},
        {"checkpoint", "checkpoint_000003"}},
       "restarted warm in 0.16 s: 2 workers kept, 1 new, from checkpoint_000003"},
      {{{"event", "restarted"}, {"kind", "cold"}, {"seconds", 1.0}, {"kept", 0}, {"replaced", 2}},
       "restarted cold in 1.00 s: 0 workers kept, 2 new, from the beginning"},
      {{{"event", "pausing"}, {"seconds", 2.0}, {"failures", 2}},
       "2 failures in a row without progress: the next attempt starts in 2 s"},
      {{{"event", "resizing"}, {"from", 2}, {"to", 4}, {"why", "at a checkpoint"}},
       "resizing from 2 to 4 workers (at a checkpoint)"},
      {{{"event", "preemption_announced"}, {"ranks", List{1}}, {"seconds", 20.0}, {"why", "SIGTERM from pid 1"}},
       "rank 1 will be preempted in 20 s: SIGTERM from pid 1"},
      {{{"event", "preemption_announced"}, {"ranks", List{0, 1, 3}}, {"seconds", 0.5}, {"why", "spot"}},
       "ranks 0-1,3 will be preempted in 0.5 s: spot"},
      {{{"event", "hang_detected"},
        {"rank", 1},
        {"summary", "no report for 5 s: rank 1 is behind"},
        {"path", "/r/stacks/attempt_0-1.txt"},
        {"next", "warn"}},
       "warning: no report for 5 s: rank 1 is behind; all stacks: /r/stacks/attempt_0-1.txt"},
      {{{"event", "warning"}, {"message", "slow disk"}}, "warning: slow disk"},
      {{{"event", "stop_requested"}, {"why", "Ctrl-C"}}, "stop requested: Ctrl-C"},
      {{{"event", "run_finished"}, {"outcome", "finished"}, {"seconds", 12.34}, {"attempts", 1}, {"reports", 40}},
       "run finished after 12.3 s, 40 reports"},
      {{{"event", "run_finished"},
        {"outcome", "failed"},
        {"seconds", 1.0},
        {"attempts", 2},
        {"reports", 1},
        {"error", "rank 1 died"}},
       "run failed after 1.0 s, 2 attempts, 1 report"},
      {{{"event", "worker_failed"},
        {"rank", 0},
        {"pid", 7},
        {"host", "a"},
        {"error_type", "ValueError"},
        {"message", "boom"},
        {"alike", List{1, 2, 5}}},
       "rank 0 (pid 7, host a) failed: ValueError: boom; same error on rank 1-2,5"},
      {{{"event", "output"}, {"ranks", List{0, 1, 2}}, {"line", "hello"}}, "[rank 0-2] hello"},
  };
  for (const auto& each : cases) {
    CAPTURE(each.line);
    REQUIRE(describe(each.event));
    CHECK(*describe(each.event) == each.line);
  }
}

TEST_CASE("the other events are not shown") {
  for (const char* kind :
       {"attempt_started", "worker_started", "worker_connected", "function_entered", "report", "worker_finished",
        "checkpoint_removed", "validation_requested", "worker_kept", "resize_wanted", ""}) {
    CAPTURE(kind);
    CHECK_FALSE(describe({{"event", kind}}));
  }
  CHECK_FALSE(describe({}));
  CHECK_FALSE(describe({{"event", "worker_failed"}, {"rank", 2}, {"collateral", true}}));
  CHECK_FALSE(describe({{"event", "worker_failed"}, {"rank", 2}, {"same_as", 0}}));
  CHECK_FALSE(describe({{"event", "attempt_failed"}, {"next", "fail"}, {"max_failures", 0}}));
  // The same error too often: run_finished gives the reason.
  CHECK_FALSE(describe({{"event", "attempt_failed"}, {"next", "fail"}, {"failures", 3}, {"max_failures", 9}}));
  CHECK_FALSE(describe({{"event", "hang_detected"}, {"summary", "no report"}, {"next", "restart"}}));
}

TEST_CASE("metrics become rows") {
  using Rows = std::vector<std::pair<std::string, std::string>>;
  trireme::Dict metrics = {{"loss", 0.03125}, {"eval", Dict{{"top", Dict{{"1", 0.5}}}, {"n", 3}}},
                           {"ok", true},      {"bad", std::numeric_limits<double>::quiet_NaN()},
                           {"name", "x"},     {"list", List{1, 2}}};
  CHECK(metric_rows(metrics) == Rows{{"loss", "0.03125"},
                                     {"eval/top/1", "0.5"},
                                     {"eval/n", "3"},
                                     {"ok", "yes"},
                                     {"bad", "nan"},
                                     {"name", "x"},
                                     {"list", "[1,2]"}});
}

TEST_CASE("the result table") {
  CHECK(result_table({{"outcome", "finished"},
                      {"seconds", 12.34},
                      {"attempts", 1},
                      {"reports", 40},
                      {"error", nullptr},
                      {"metrics", Dict{{"loss", 0.25}}},
                      {"checkpoint", "/r/digits/checkpoint_000012"},
                      {"path", "/r/digits"}}) ==
        "  outcome     finished\n"
        "  time        12.3 s\n"
        "  attempts    1\n"
        "  reports     40\n"
        "  loss        0.25\n"
        "  checkpoint  /r/digits/checkpoint_000012\n"
        "  folder      /r/digits\n");
  CHECK(result_table(
            {{"outcome", "failed"}, {"seconds", 1.0}, {"error", "rank 1 died\nlong story"}, {"metrics", nullptr}})
            .find("  error     rank 1 died\n") != std::string::npos);
}

TEST_CASE("a thousand metrics are shown in a few lines") {
  trireme::Dict metrics;
  for (int i = 0; i < 1000; ++i) metrics[fmt::format("metric_{}", i)] = i;
  const std::string table = result_table({{"outcome", "finished"}, {"metrics", metrics}, {"path", "/r/digits"}});
  CHECK(std::count(table.begin(), table.end(), '\n') == 26);
  CHECK(table.find("  metric_19  19\n  ...        980 more metrics in metrics.csv\n  folder") != std::string::npos);
  CHECK(first_metric_rows(Dict{{"loss", 1}}, "metrics.csv").size() == 1);
  CHECK(metrics_text(metrics) == "metric_0 0, metric_1 1, metric_2 2, metric_3 3, ...");
  CHECK(describe({{"event", "checkpoint_validated"}, {"name", "c"}, {"status", "VALIDATED"}, {"metrics", metrics}}) ==
        "c validated (metric_0 0, metric_1 1, metric_2 2, metric_3 3, ...)");
  CHECK(describe({{"event", "checkpoint_validated"}, {"name", "c"}, {"status", "VALIDATED"}}) == "c validated");
}

TEST_CASE("text is cut between characters") {
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abcd", 3) == "abc...");
  CHECK(shortened("a\u00e4b", 2) == "a...");
}

}  // namespace describe_test
