#include "control/retention.h"

#include <doctest/doctest.h>

#include <limits>

namespace retention_test {

using namespace trireme;
using namespace trireme::control;
using checkpoint::Status;

namespace {

using Names = std::vector<std::string>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// "c0", "c1", ... with these values of "m"; null for none.
std::vector<KeptCheckpoint> with_scores(const List& scores) {
  std::vector<KeptCheckpoint> kept;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    Metrics metrics;
    if (!scores[i].is_null()) metrics["m"] = scores[i];
    kept.push_back({static_cast<std::int64_t>(i), "c" + std::to_string(i), metrics, Status::kCommitted, {}});
  }
  return kept;
}

CheckpointConfig keep(std::optional<std::int64_t> count, std::optional<std::string> attribute = "m",
                      const std::string& order = "max") {
  CheckpointConfig config;
  config.num_to_keep = count;
  config.checkpoint_score_attribute = std::move(attribute);
  config.checkpoint_score_order = order;
  return config;
}

Names names_of(const std::vector<KeptCheckpoint>& kept) {
  Names names;
  for (const auto& each : kept) names.push_back(each.name);
  return names;
}

}  // namespace

TEST_CASE("checkpoints are ranked, worst first") {
  struct Case {
    const char* what;
    List scores;
    const char* order;
    Names ranked;
  };
  for (const Case& row : {
           Case{"higher is better", {2, 3, 1}, "max", {"c2", "c0", "c1"}},
           Case{"lower is better", {2, 3, 1}, "min", {"c1", "c0", "c2"}},
           Case{"integers and floats", {2, 2.5, 1}, "max", {"c2", "c0", "c1"}},
           Case{"of equals the later one is better", {1, 1, 0}, "max", {"c2", "c0", "c1"}},
           Case{"also where lower is better", {1, 1, 2}, "min", {"c2", "c0", "c1"}},
           Case{"NaN is worst", {2, kNan, 1}, "max", {"c1", "c2", "c0"}},
           Case{"also where lower is better", {2, kNan, 1}, "min", {"c1", "c0", "c2"}},
           Case{"infinity is a number", {kInfinity, kNan, -kInfinity}, "max", {"c1", "c2", "c0"}},
           Case{"also where lower is better", {kInfinity, kNan, -kInfinity}, "min", {"c1", "c0", "c2"}},
           Case{"a missing score is worst", {nullptr, -5, nullptr}, "max", {"c0", "c2", "c1"}},
           Case{"so is what is no number", {"good", -5, List{9}, Dict{{"x", 9}}}, "max", {"c0", "c2", "c3", "c1"}},
       }) {
    CAPTURE(row.what);
    CHECK(names_of(ranked(with_scores(row.scores), keep({}, "m", row.order))) == row.ranked);
  }
}

TEST_CASE("without a score they are ranked by age") {
  auto kept = with_scores({3, 2, 1});
  std::swap(kept[0], kept[2]);
  CHECK(names_of(ranked(kept, keep({}, std::nullopt))) == Names{"c0", "c1", "c2"});
}

TEST_CASE("a score inside of nested metrics") {
  auto kept = with_scores({nullptr, nullptr});
  kept[0].metrics = {{"eval", Dict{{"acc", 0.9}}}};
  kept[1].metrics = {{"eval", Dict{{"acc", 0.8}}}};
  CHECK(names_of(ranked(kept, keep({}, "eval/acc"))) == Names{"c1", "c0"});
}

TEST_CASE("which checkpoints are removed") {
  struct Case {
    const char* what;
    List scores;
    CheckpointConfig config;
    Names gone;
  };
  for (const Case& row : {
           Case{"without a limit none", {1, 2, 3}, keep({}), {}},
           Case{"as many as may stay", {3, 2, 1}, keep(3), {}},
           Case{"the worst", {2, 1, 3}, keep(2), {"c1"}},
           Case{"the worst ones, worst first", {2, 1, 3, 4}, keep(2), {"c1", "c0"}},
           Case{"the oldest", {9, 8, 7}, keep(1, std::nullopt), {"c0", "c1"}},
           Case{"never the newest", {3, 2, 1}, keep(2), {}},
           Case{"nor where its score is missing", {3, 2, nullptr}, keep(1), {"c1"}},
           Case{"nor where it is NaN", {3, 2, kNan}, keep(1), {"c1"}},
           Case{"NaN before the worst number", {kNan, -1, 3}, keep(2), {"c0"}},
           Case{"of equals the older one", {1, 1, 1}, keep(2), {"c0"}},
           Case{"lower is better", {1, 2, 3, 0}, keep(2, "m", "min"), {"c2", "c1"}},
       }) {
    CAPTURE(row.what);
    CHECK(names_of(surplus(with_scores(row.scores), row.config)) == row.gone);
  }
  CHECK(surplus({}, keep(1)).empty());
}

TEST_CASE("a checkpoint with a pending validation is kept") {
  auto kept = with_scores({nullptr, 2, 3});
  kept[0].status = Status::kPendingValidation;
  CHECK(names_of(surplus(kept, keep(1))) == Names{"c1"});
  kept[0].status = Status::kValidationFailed;
  CHECK(names_of(surplus(kept, keep(1))) == Names{"c0", "c1"});
}

TEST_CASE("the list for programs") {
  auto kept = with_scores({0.5});
  kept[0].status = Status::kValidated;
  CHECK(to_list(kept, "/r/run") == List{Dict{{"name", "c0"},
                                             {"path", "/r/run/c0"},
                                             {"index", 0},
                                             {"metrics", Dict{{"m", 0.5}}},
                                             {"status", "VALIDATED"}}});
}

}  // namespace retention_test
