#include "api/progress.h"

#include <doctest/doctest.h>

namespace progress_test {

using trireme::Dict;
using trireme::api::Progress;

namespace {

Dict report(int rank, int index, int attempt = 0) {
  return {
      {"event", "report"}, {"attempt", attempt}, {"rank", rank}, {"index", index}, {"metrics", Dict{{"loss", index}}}};
}

}  // namespace

TEST_CASE("the progress line") {
  Progress progress;
  CHECK(progress.text(0) == "0.0 s  0 workers  0 reports");
  progress.count({{"event", "attempt_started"}, {"attempt", 0}, {"num_workers", 1}});
  progress.count(report(0, 0));
  CHECK(progress.text(1) == "1.0 s  1 worker  1 report  loss 0");
  progress.count({{"event", "attempt_started"}, {"attempt", 1}, {"num_workers", 2}});
  progress.count(report(0, 1, 1));
  CHECK(progress.text(2.25) == "2.2 s  attempt 1  2 workers  2 reports  loss 1");
}

TEST_CASE("shows the reports of the furthest rank and the metrics of rank 0") {
  Progress progress;
  progress.count(report(0, 2));
  progress.count(report(1, 4));
  progress.count(report(0, 3));
  CHECK(progress.reports() == 5);
  CHECK(progress.text(0).ends_with("5 reports  loss 3"));
  // A restart begins at a checkpoint: repeated reports are not counted twice.
  progress.count(report(1, 2, 1));
  CHECK(progress.reports() == 3);
}

TEST_CASE("a continued run keeps counting") {
  Progress progress;
  progress.count({{"event", "run_started"}, {"resumed", true}, {"reports", 8}});
  CHECK(progress.reports() == 8);
  progress.count(report(0, 6, 3));
  CHECK(progress.reports() == 7);
}

TEST_CASE("a progress line stays short") {
  Progress progress;
  Dict metrics;
  for (int i = 0; i < 1000; ++i) metrics["metric_" + std::to_string(i)] = std::string(1000, 'x');
  progress.count({{"event", "report"}, {"rank", 0}, {"index", 0}, {"metrics", metrics}});
  CHECK(progress.text(0).size() < 300);
}

}  // namespace progress_test
