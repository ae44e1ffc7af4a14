#include "base/metric.h"

#include <doctest/doctest.h>

#include <limits>

namespace metric_test {

using namespace trireme;
using base::find_metric;

TEST_CASE("metrics are found by name, also nested ones") {
  const Metrics metrics{{"loss", 0.5},
                        {"step", 3},
                        {"eval", Dict{{"acc", 0.9}, {"top", Dict{{"5", 1}}}}},
                        {"a/b", 7},
                        {"a", Dict{{"b", 8}, {"c", 9}}},
                        {"text/b", 1},
                        {"text", "x"},
                        {"word", "high"},
                        {"flag", true},
                        {"none", nullptr},
                        {"nan", std::numeric_limits<double>::quiet_NaN()},
                        {"inf", std::numeric_limits<double>::infinity()}};
  struct Case {
    const char* name;
    std::optional<double> found;
  };
  for (const Case& row : {Case{"loss", 0.5},
                          {"step", 3},
                          {"eval/acc", 0.9},
                          {"eval/top/5", 1},
                          {"a/b", 7},  // a key with a slash in its name
                          {"a/c", 9},
                          {"text/b", 1},
                          {"inf", std::numeric_limits<double>::infinity()},
                          {"absent", {}},
                          {"eval", {}},
                          {"eval/absent", {}},
                          {"eval/acc/deeper", {}},
                          {"loss/x", {}},
                          {"word", {}},
                          {"flag", {}},
                          {"none", {}},
                          {"nan", {}},
                          {"", {}},
                          {"/", {}},
                          {"eval/", {}}}) {
    CAPTURE(row.name);
    CHECK(find_metric(metrics, row.name) == row.found);
  }
}

TEST_CASE("a key without a number does not hide the nested metric") {
  CHECK(find_metric({{"a/b", "text"}, {"a", Dict{{"b", 2}}}}, "a/b") == 2);
}

}  // namespace metric_test
