#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "../temp_dir.h"
#include "data/digest_verify.h"
#include "gang.h"

// Logs that are missing or cut short, against what the event log of the run knows.

namespace digest_evidence_test {

using namespace trireme;
using namespace trireme::data;
using tests::Case;
using tests::shard_of;
using tests::TempDir;

namespace {

namespace fs = std::filesystem;

const Case kShape{.fragment_rows = {40, 60}, .ordering = {.seed = 3}, .iterating = {.global_batch_size = 10}};

// One rank that reads some steps of two datasets, reports after each, and returns.
struct TwoDatasets {
  explicit TwoDatasets(int steps, bool returns = true) {
    facts.datasets[0] = {"train", "valid"};
    for (const char* name : {"train", "valid"}) {
      auto shard = shard_of(kShape, 0, 1, {.name = name, .digest_folder = folder.path()});
      auto pass = shard->iterate(kShape.iterating).value();
      for (int step = 0; step < steps; ++step) {
        REQUIRE(pass->next(std::chrono::seconds(60)));
        (void)shard->position();
        facts.logged[{0, 0}][name] = shard->logged_rows().value();
      }
      if (returns) shard->finish();
    }
    facts.took.emplace(0, 0);
    if (returns) facts.finished.emplace(0, 0);
  }

  std::string problem_of(const std::string& dataset) const {
    const auto verdicts = verify_digests(folder.path(), facts);
    if (!verdicts) FAIL(verdicts.error().message());
    for (const auto& each : *verdicts) {
      if (each.dataset == dataset) return each.problem;
    }
    return "no verdict";
  }

  TempDir folder;
  RunFacts facts;
};

}  // namespace

TEST_CASE("a dataset whose logs are all deleted is found") {
  TwoDatasets run(11);
  CHECK(run.problem_of("train") == "");
  SUBCASE("its log") { fs::remove(run.folder / "train.0.jsonl"); }
  SUBCASE("its log, and no report has counted its rows") {
    run.facts.logged.clear();
    fs::remove(run.folder / "train.0.jsonl");
  }
  SUBCASE("all files") {
    for (const auto& entry : fs::directory_iterator(run.folder.path())) {
      if (entry.path().filename().string().starts_with("train")) fs::remove(entry.path());
    }
  }
  SUBCASE("the whole folder") {
    fs::remove_all(run.folder.path());
    CHECK(run.problem_of("valid") == "rank 0 finished attempt 0, but it has no log: lines are missing");
  }
  CHECK(run.problem_of("train") == "rank 0 finished attempt 0, but it has no log: lines are missing");
}

TEST_CASE("lines that a report has counted are not missing in a run that has not ended") {
  const TwoDatasets run(4, false);
  CHECK(run.problem_of("train") == "");
  CHECK(run.facts.logged.at({0, 0}).at("train") == 40);
  const std::string log = run.folder / "train.0.jsonl";
  std::vector<std::string> lines;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) lines.push_back(line + "\n");
  REQUIRE(lines.size() == 6);  // the pass, four steps, and its end
  SUBCASE("the end of a pass has no rows") {
    lines.pop_back();
    std::ofstream out(log);
    for (const auto& line : lines) out << line;
    out.close();
    CHECK(run.problem_of("train") == "");
  }
  SUBCASE("the last rows") {
    std::ofstream out(log);
    for (std::size_t i = 0; i < 4; ++i) out << lines[i];
    out.close();
    CHECK(run.problem_of("train") == "rank 0 had logged 40 rows in attempt 0, but its log has 30: lines are missing");
  }
  SUBCASE("all rows") {
    fs::remove(log);
    CHECK(run.problem_of("train") == "rank 0 had logged 40 rows in attempt 0, but its log has 0: lines are missing");
  }
  CHECK(run.problem_of("valid") == "");
}

TEST_CASE("an attempt only needs logs of the datasets that it had") {
  TwoDatasets run(11);
  run.facts.datasets[0] = {"train"};  // "valid" was added when the run was continued
  run.facts.logged.clear();
  fs::remove(run.folder / "valid.0.jsonl");
  CHECK(run.problem_of("valid") == "no verdict");
  CHECK(run.problem_of("train") == "");
}

TEST_CASE("a run that starts in the middle of an epoch may restart before its first checkpoint") {
  TempDir folder;
  RunFacts facts;
  Dict position = shard_of(kShape, 0, 1)->state();
  position["rows"] = 30;  // of a checkpoint of another run
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto shard = shard_of(kShape, 0, 1, {.digest_folder = folder.path(), .attempt = attempt});
    REQUIRE(shard->load_state(position));
    auto pass = shard->iterate(kShape.iterating).value();
    for (int step = 0; step < (attempt == 0 ? 2 : 8); ++step) REQUIRE(pass->next(std::chrono::seconds(60)));
    (void)shard->position();
    facts.took.emplace(attempt, 0);
    if (attempt == 1) shard->finish();
  }
  const auto verdicts = verify_digests(folder.path(), facts).value();
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts[0].problem == "");
  CHECK(verdicts[0].first == 30);
  CHECK(verdicts[0].seen == 100);
}

}  // namespace digest_evidence_test
