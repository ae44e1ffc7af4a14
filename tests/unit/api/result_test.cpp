#include "trireme/result.h"

#include <doctest/doctest.h>

#include <limits>

#include "checkpoint/commit.h"
#include "storage/open_files.h"
#include "unit/folder_file_system.h"
#include "unit/temp_dir.h"

namespace result_test {

using namespace trireme;
using tests::append_file;
using tests::TempDir;

namespace {

constexpr const char* kRun =
    R"({"format":1,"name":"digits","id":"aa","created":100.0,
"run_config":{"checkpoint_config":{"checkpoint_score_attribute":"eval/loss","checkpoint_score_order":"min"}}})";
constexpr const char* kEvents =
    R"({"time":100.0,"event":"run_started","num_workers":2}
{"time":100.1,"event":"attempt_started","attempt":0,"num_workers":2}
{"time":101.0,"event":"report","attempt":0,"rank":0,"index":0,"metrics":{"loss":2}}
{"time":101.0,"event":"report","attempt":0,"rank":1,"index":0,"metrics":{"loss":3}}
{"time":102.0,"event":"report","attempt":0,"rank":0,"index":1,"metrics":{"loss":1}}
)";
constexpr const char* kFinished =
    R"({"time":110.0,"event":"run_finished","outcome":"finished","seconds":10.0,"attempts":1,"reports":2,"return_value":{"best":1}})";

// "near://bucket/run" if `far`, otherwise a folder.
std::string make_run(const TempDir& dir, bool far) {
  if (far) {
    register_filesystem("near", [path = dir.path()](const std::string&) {
      return std::make_shared<tests::FolderFileSystem>(path / "store");
    });
  }
  const std::string folder = far ? dir / "store/bucket/run" : dir / "run";
  append_file(folder + "/run.json", kRun);
  append_file(folder + "/events.jsonl", kEvents);
  const std::string uri = far ? "near://bucket/run" : folder;
  std::string path;
  auto files = storage::open_files(uri, path);
  REQUIRE(files);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [index, loss] : std::vector<std::pair<int, double>>{{0, 0.5}, {1, 0.1}, {2, 0.3}, {3, nan}}) {
    const std::string name = checkpoint::default_name(index);
    append_file(folder + "/" + name + "/weights", "w");
    auto stored = (*files)->adopt_folder(path + "/" + name);
    REQUIRE(stored);
    checkpoint::Manifest manifest;
    manifest.index = index;
    manifest.metrics = {{"eval", Dict{{"loss", loss}}}, {"step", index}};
    manifest.files = *stored;
    REQUIRE(checkpoint::commit(**files, path, name, manifest));
  }
  return uri;
}

std::string last_part(const Checkpoint& checkpoint) {
  return checkpoint.path().substr(checkpoint.path().rfind('/') + 1);
}

}  // namespace

TEST_CASE("the result of any run folder") {
  for (bool far : {false, true}) {
    CAPTURE(far);
    TempDir dir;
    const std::string uri = make_run(dir, far);
    // The run has not ended yet, according to its folder.
    Result result = Result::from_path(uri);
    CHECK(result.path == uri);
    CHECK(result.metrics == Metrics{{"loss", 1}});
    CHECK(result.reports == 2);
    CHECK_FALSE(result.error);
    CHECK(result.return_value.is_null());
    REQUIRE(result.checkpoint);
    CHECK(result.checkpoint->path() == uri + "/checkpoint_000003");
    // Worst first: the one without a score, then in the configured order.
    std::string order;
    for (const auto& [checkpoint, metrics] : result.best_checkpoints) order += checkpoint.path().back();
    CHECK(order == "3021");
    CHECK(result.metrics_history() == std::vector<Metrics>{{{"loss", 2}}, {{"loss", 1}}});
    CHECK(result.metrics_of_all_ranks().size() == 3);

    append_file((far ? dir / "store/bucket/run" : dir / "run") + "/events.jsonl", std::string(kFinished) + "\n");
    result = Result::from_path(uri);
    CHECK(result.return_value == Value(Dict{{"best", 1}}));
    CHECK(result.seconds == 10.0);
  }
}

TEST_CASE("the best checkpoint by any metric") {
  TempDir dir;
  const Result result = Result::from_path(make_run(dir, false));
  CHECK(last_part(result.get_best_checkpoint("eval/loss", "min")) == "checkpoint_000001");
  CHECK(last_part(result.get_best_checkpoint("eval/loss", "max")) == "checkpoint_000000");
  CHECK(last_part(result.get_best_checkpoint("step", "max")) == "checkpoint_000003");
  CHECK_THROWS_AS(result.get_best_checkpoint("absent", "max"), std::runtime_error);
  CHECK_THROWS_AS(result.get_best_checkpoint("step", "best"), std::invalid_argument);
}

TEST_CASE("paths that are not run folders are refused") {
  TempDir dir;
  CHECK_THROWS_AS(Result::from_path(dir / "absent"), std::runtime_error);
  CHECK_THROWS_AS(Result::from_path("nowhere://bucket/run"), std::runtime_error);
}

}  // namespace result_test
