#include "checkpoint/commit.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "base/json.h"
#include "storage/local_files.h"
#include "unit/temp_dir.h"

using namespace trireme;
using namespace trireme::checkpoint;
using tests::append_file;
using tests::TempDir;
namespace fs = std::filesystem;

TEST_CASE("names come from the report") {
  CHECK(default_name(0) == "checkpoint_000000");
  CHECK(default_name(12) == "checkpoint_000012");
  CHECK(default_name(12345678) == "checkpoint_12345678");
}

TEST_CASE("a name stays inside the run folder") {
  for (const char* name : {"best", "checkpoint_000001", "epoch=3", "a b"}) {
    CAPTURE(name);
    CHECK(check_name(name));
  }
  for (const char* name : {"", ".", "..", "a/b", "/etc", "../x", ".hidden", "logs"}) {
    CAPTURE(name);
    auto checked = check_name(name);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().message().find(name) != std::string::npos);
  }
}

TEST_CASE("a checkpoint exists once its manifest does") {
  TempDir dir;
  append_file(dir / "rank0/weights", "0000");
  append_file(dir / "rank1/shard/weights", "11");
  const std::string run = dir / "run";
  REQUIRE(storage::make_folder(run));
  REQUIRE(upload(dir / "rank0", run, "checkpoint_000003"));
  REQUIRE(upload(dir / "rank1", run, "checkpoint_000003"));
  auto none = list_committed(run);
  REQUIRE(none);
  CHECK(none->empty());

  const Metrics metrics{{"loss", 0.25}, {"nan", std::numeric_limits<double>::infinity()}};
  auto committed = commit(run, "checkpoint_000003", 3, metrics);
  REQUIRE(committed);
  CHECK(committed->path == run + "/checkpoint_000003");
  auto listed = list_committed(run);
  REQUIRE(listed);
  REQUIRE(listed->size() == 1);
  CHECK(listed->front().index == 3);
  CHECK(listed->front().name == "checkpoint_000003");
  CHECK(listed->front().metrics == metrics);

  auto manifest = base::parse_json_dict(*storage::read_file(run + "/checkpoint_000003/" + kManifestName));
  REQUIRE(manifest);
  CHECK((*manifest)["files"] ==
        Value(List{Dict{{"path", "shard/weights"}, {"size", 2}}, Dict{{"path", "weights"}, {"size", 4}}}));
  CHECK(*storage::read_file(run + "/checkpoint_000003/weights") == "0000");
}

TEST_CASE("what was written straight into the run folder is not copied") {
  TempDir dir;
  const std::string run = dir / "run";
  append_file(run + "/mine/weights", "w");
  REQUIRE(upload(run + "/mine", run, "mine"));
  REQUIRE(commit(run, "mine", 0, {}));
  CHECK(*storage::read_file(run + "/mine/weights") == "w");
  CHECK(list_committed(run)->size() == 1);
}

TEST_CASE("checkpoints are listed by their reports") {
  TempDir dir;
  for (int index : {10, 2, 7}) {
    const std::string name = index == 7 ? "best" : default_name(index);
    append_file(dir / name + "/file", "x");
    REQUIRE(commit(dir.path(), name, index, {}));
  }
  append_file(dir / "logs/attempt_0/rank_0.log", "x");
  append_file(dir / "run.json", "{}");
  auto listed = list_committed(dir.path());
  REQUIRE(listed);
  REQUIRE(listed->size() == 3);
  CHECK((*listed)[0].index == 2);
  CHECK((*listed)[1].name == "best");
  CHECK((*listed)[2].index == 10);
}

TEST_CASE("what an attempt left half-written goes, everything else stays") {
  TempDir dir;
  append_file(dir / "source/file", "x");
  REQUIRE(upload(dir / "source", dir.path(), "checkpoint_000000"));
  REQUIRE(commit(dir.path(), "checkpoint_000000", 0, {}));
  REQUIRE(upload(dir / "source", dir.path(), "checkpoint_000001"));
  REQUIRE(upload(dir / "source", dir.path(), "chosen"));
  append_file(dir / "checkpoint_notes", "a file, not a folder");
  append_file(dir / "plots/loss.png", "x");
  REQUIRE(remove_unfinished(dir.path()));
  CHECK(fs::exists(dir / "checkpoint_000000/file"));
  CHECK_FALSE(fs::exists(dir / "checkpoint_000001"));
  CHECK_FALSE(fs::exists(dir / "chosen"));
  CHECK(fs::exists(dir / "checkpoint_notes"));
  CHECK(fs::exists(dir / "plots/loss.png"));
  CHECK(fs::exists(dir / "source/file"));
}

TEST_CASE("errors name what they are about") {
  TempDir dir;
  CHECK(upload(dir / "absent", dir.path(), "checkpoint_000000").error().message() ==
        "the checkpoint folder " + (dir / "absent") + " does not exist");
  CHECK_FALSE(fs::exists(dir / "checkpoint_000000"));
  CHECK_FALSE(commit(dir.path(), "checkpoint_000000", 0, {}));
  CHECK_FALSE(list_committed(dir / "absent"));
  CHECK_FALSE(remove_unfinished(dir / "absent"));
  for (const char* text :
       {"{", "[]", "{\"index\":1}", "{\"index\":\"1\",\"metrics\":{}}", "{\"index\":1,\"metrics\":[]}"}) {
    CAPTURE(text);
    TempDir damaged;
    append_file(damaged / "checkpoint_000004/" + kManifestName, text);
    auto listed = list_committed(damaged.path());
    REQUIRE_FALSE(listed);
    CHECK(listed.error().message().find("checkpoint_000004/.trireme_manifest.json") != std::string::npos);
  }
}
