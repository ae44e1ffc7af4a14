#include "control/position_check.h"

#include <doctest/doctest.h>

namespace position_check_test {

using namespace trireme;
using trireme::control::PositionCheck;

namespace {

Dict at_row(std::int64_t row, std::int64_t epoch = 0) {
  return {{"data/train", Dict{{"epoch", epoch}, {"rows", row}, {"size", 100}}}};
}

}  // namespace

TEST_CASE("ranks that are at different positions at the same report are named") {
  PositionCheck check;
  SUBCASE("all at the same") {
    for (int rank : {1, 0, 2}) check.report(rank, 0, at_row(10));
    CHECK(check.take_difference(0) == "");
  }
  SUBCASE("a rank that reports twice per step is behind, whoever reports first") {
    for (std::int64_t index : {0, 1}) check.report(1, index, at_row(10));
    CHECK(check.take_difference(0) == "");
    check.report(0, 0, at_row(10));
    check.report(0, 1, at_row(20));
    CHECK(check.take_difference(1) ==
          "rank 0 was at row 20 of epoch 0 of dataset 'train' and rank 1 at row 10 of epoch 0");
  }
  SUBCASE("another epoch") {
    check.report(0, 3, at_row(0, 1));
    check.report(1, 3, at_row(0, 2));
    CHECK(check.take_difference(3).find("rank 1 was at row 0 of epoch 2") == 0);
  }
  SUBCASE("the first difference is kept until its report is taken") {
    check.report(0, 0, at_row(10));
    check.report(1, 0, at_row(20));
    check.report(2, 0, at_row(30));
    CHECK(check.take_difference(0).find("rank 1 was at row 20") == 0);
    CHECK(check.take_difference(0) == "");
  }
}

TEST_CASE("positions that may differ between ranks are not compared") {
  PositionCheck check;
  const auto report_both = [&](const Dict& first, const Dict& second) {
    check.report(0, 0, first);
    check.report(1, 0, second);
    return check.take_difference(0);
  };
  Dict whole = at_row(10);
  whole["data/train"] = Dict{{"epoch", 0}, {"rows", 10}, {"whole", true}};
  CHECK(report_both(whole, at_row(20)) == "");
  CHECK(report_both({{"loader/0", Dict{{"epoch", 0}}}}, {{"loader/0", Dict{{"epoch", 1}}}}) == "");
  CHECK(report_both({{"data/train", Value()}}, at_row(20)) == "");  // not requested yet
  CHECK(report_both({}, at_row(20)) == "");
}

TEST_CASE("reports that no checkpoint waits for are forgotten at some point") {
  PositionCheck check;
  check.report(1, 0, at_row(20));
  for (std::int64_t index = 0; index < 20'000; ++index) check.report(0, index, at_row(10));
  CHECK(check.take_difference(0) == "");
  check.report(1, 19'999, at_row(30));
  CHECK(check.take_difference(19'999) != "");
}

}  // namespace position_check_test
