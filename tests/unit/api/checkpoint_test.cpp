#include "trireme/checkpoint.h"

#include <doctest/doctest.h>

#include <functional>

#include "checkpoint/commit.h"
#include "checkpoint/state_file.h"
#include "storage/local_files.h"
#include "storage/open_files.h"
#include "unit/environment.h"
#include "unit/folder_file_system.h"
#include "unit/temp_dir.h"

namespace checkpoint_test {

using namespace trireme;
using tests::append_file;
using tests::TempDir;
namespace fs = std::filesystem;

namespace {

std::string content(const std::string& path) {
  auto text = storage::read_file(path);
  REQUIRE(text);
  return *std::move(text);
}

// Commits the content of a folder as checkpoint "c0" of the run and returns its URI.
std::string commit(const std::string& run_uri, const std::string& source) {
  std::string path;
  auto files = storage::open_files(run_uri, path);
  REQUIRE(files);
  checkpoint::Manifest manifest;
  auto uploaded = checkpoint::upload(**files, source, path, "c0");
  REQUIRE(uploaded);
  manifest.files = *uploaded;
  REQUIRE(checkpoint::commit(**files, path, "c0", manifest));
  return storage::child_of(run_uri, "c0");
}

}  // namespace

TEST_CASE("a checkpoint is a folder") {
  TempDir dir;
  CHECK_THROWS_WITH_AS(Checkpoint::from_directory(dir / "absent"),
                       ("checkpoint folder " + (dir / "absent") + " does not exist").c_str(), std::runtime_error);
  append_file(dir / "c/deep/a", "weights");
  const Checkpoint checkpoint = Checkpoint::from_directory(dir / "c");
  CHECK(checkpoint.path() == dir / "c");
  CHECK(checkpoint.state() == nullptr);
  CHECK(checkpoint.as_directory().path() == dir / "c");
  CHECK(checkpoint.to_directory(dir / "copy") == dir / "copy");
  CHECK(content(dir / "copy/deep/a") == "weights");
  CHECK(Checkpoint::from_directory("file://" + (dir / "c")) == checkpoint);
}

TEST_CASE("metadata is stored next to the files") {
  TempDir dir;
  append_file(dir / "c/a", "x");
  Checkpoint checkpoint(dir / "c");
  CHECK(checkpoint.get_metadata().empty());
  checkpoint.set_metadata({{"a", 1}, {"b", 2}});
  checkpoint.update_metadata({{"b", 3}, {"c", 4}});
  CHECK(checkpoint.get_metadata() == Dict{{"a", 1}, {"b", 3}, {"c", 4}});
}

TEST_CASE("a checkpoint from a state has no folder") {
  const Checkpoint checkpoint = Checkpoint::from_state({{"epoch", 3}});
  CHECK(checkpoint.path() == "");
  REQUIRE(checkpoint.state());
  CHECK(checkpoint.load_state() == Dict{{"epoch", 3}});
  CHECK_THROWS_AS(checkpoint.as_directory(), std::runtime_error);
  CHECK_THROWS_AS(checkpoint.get_metadata(), std::runtime_error);
}

TEST_CASE("the state of a rank") {
  TempDir dir;
  REQUIRE(checkpoint::save_state(dir / "c", {{"rank", 0}}));
  REQUIRE(checkpoint::save_state(dir / "c/rank_2", {{"rank", 2}}));
  const Checkpoint checkpoint(dir / "c");
  CHECK(checkpoint.load_state() == Dict{{"rank", 0}});
  CHECK(checkpoint.load_state(0) == Dict{{"rank", 0}});
  CHECK(checkpoint.load_state(2) == Dict{{"rank", 2}});
  CHECK_THROWS_WITH_AS(checkpoint.load_state(1), (dir / "c" + " has no state of rank 1").c_str(), std::runtime_error);
}

TEST_CASE("a checkpoint in remote storage") {
  TempDir dir;
  const tests::Environment temporary("TMPDIR", dir / "tmp");
  fs::create_directories(dir / "tmp");
  register_filesystem("near",
                      [&](const std::string&) { return std::make_shared<tests::FolderFileSystem>(dir / "store"); });
  REQUIRE(checkpoint::save_state(dir / "source", {{"w", Tensor::of<float>({1, 2})}}));
  const std::string uri = commit("near://bucket/run", dir / "source");
  CHECK(uri == "near://bucket/run/c0");
  Checkpoint checkpoint = Checkpoint::from_directory(uri);
  std::string folder;
  {
    const auto directory = checkpoint.as_directory();
    folder = directory.path();
    CHECK(fs::exists(folder + "/state.json"));
    // Concurrent users share one download.
    CHECK(checkpoint.as_directory().path() == folder);
    CHECK(fs::exists(folder + "/state.json"));
  }
  CHECK_FALSE(fs::exists(folder + "/state.json"));
  // A loaded state outlives the download.
  const Dict state = checkpoint.load_state();
  CHECK(state.at("w").as_tensor().values<float>()[1] == 2);
  checkpoint.set_metadata({{"a", 1}});
  CHECK(checkpoint.get_metadata() == Dict{{"a", 1}});

  const std::string damaged = dir / "store/bucket/run/c0/state.safetensors";
  const auto size = fs::file_size(damaged);
  fs::remove(damaged);
  append_file(damaged, std::string(size, 'x'));
  for (const auto& look : {std::function<void()>([&] { checkpoint.to_directory(dir / "copy"); }),
                           std::function<void()>([&] { checkpoint.as_directory(); })}) {
    std::string why;
    try {
      look();
    } catch (const std::runtime_error& thrown) {
      why = thrown.what();
    }
    CAPTURE(why);
    CHECK(why.find("state.safetensors") != std::string::npos);
  }
}

}  // namespace checkpoint_test
