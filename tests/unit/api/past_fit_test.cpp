#include "api/past_fit.h"

#include <doctest/doctest.h>

#include "trireme/config.h"

namespace past_fit_test {

using trireme::Checkpoint;
using trireme::ConfigError;
using trireme::Dict;
using trireme::Result;
using trireme::TrainingFailedError;
using trireme::WorkerFailure;
using trireme::api::PastFit;

namespace {

// As a worker receives it.
PastFit sent(const PastFit& past) { return PastFit::decode(past.encode()); }

}  // namespace

TEST_CASE("the replayed main() gets the complete result") {
  Result result;
  result.metrics = Dict{{"loss", 0.5}, {"step", 3}};
  result.checkpoint = Checkpoint("/runs/a/checkpoint_000003");
  result.best_checkpoints.emplace_back(Checkpoint("/runs/a/checkpoint_000002"), Dict{{"loss", 0.7}});
  result.return_value = trireme::List{1, "two"};
  result.path = "/runs/a";
  result.seconds = 1.5;
  result.attempts = 2;
  result.reports = 8;
  const Result again = sent({PastFit::End::kReturned, result, "", {}}).repeat();
  CHECK(again.metrics == result.metrics);
  CHECK(again.checkpoint == result.checkpoint);
  CHECK(again.best_checkpoints == result.best_checkpoints);
  CHECK(again.return_value == result.return_value);
  CHECK(again.path == "/runs/a");
  CHECK(again.seconds == 1.5);
  CHECK(again.attempts == 2);
  CHECK(again.reports == 8);
}

TEST_CASE("a result without metrics and checkpoint, as in local mode") {
  const Result again = sent({PastFit::End::kReturned, {}, "", {}}).repeat();
  CHECK_FALSE(again.metrics);
  CHECK_FALSE(again.checkpoint);
  CHECK(again.return_value.is_null());
}

TEST_CASE("exceptions are thrown again with the same type") {
  WorkerFailure failure{1, 4711, "a", "signal", "WorkerKilled", "SIGKILL", "", {"last", "words"}, true};
  try {
    sent({PastFit::End::kFailed, {}, "training failed", {failure}}).repeat();
    FAIL("nothing was thrown");
  } catch (const TrainingFailedError& error) {
    CHECK(std::string(error.what()) == "training failed");
    REQUIRE(error.worker_failures().size() == 1);
    const auto& again = error.worker_failures().front();
    CHECK(again.rank == 1);
    CHECK(again.pid == 4711);
    CHECK(again.host == "a");
    CHECK(again.cause == "signal");
    CHECK(again.error_type == "WorkerKilled");
    CHECK(again.message == "SIGKILL");
    CHECK(again.log_tail == failure.log_tail);
    CHECK(again.collateral);
  }
  CHECK_THROWS_WITH_AS(sent({PastFit::End::kRefused, {}, "num_workers", {}}).repeat(), "num_workers", ConfigError);
  CHECK_THROWS_WITH_AS(sent({PastFit::End::kThrew, {}, "a reason", {}}).repeat(), "a reason", std::runtime_error);
}

}  // namespace past_fit_test
