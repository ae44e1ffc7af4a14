#include "checkpoint/shared_download.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <latch>
#include <thread>

#include "checkpoint/commit.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "unit/storage/fake_store.h"
#include "unit/temp_dir.h"

namespace shared_download_test {

using namespace trireme;
using namespace trireme::checkpoint;
using storage::RemoteFiles;
using tests::append_file;
using tests::FakeStore;
using tests::TempDir;
namespace fs = std::filesystem;

namespace {

// A committed checkpoint with three files in a store.
struct Elsewhere {
  TempDir dir;
  std::shared_ptr<FakeStore> store = std::make_shared<FakeStore>();
  RemoteFiles files{store, "fake", {.tries = 1}};
  std::string path = "bucket/run/checkpoint_000000";
  std::string downloads = dir / "downloads";
  std::atomic<int> fetched = 0;

  Elsewhere() {
    for (const char* name : {"a", "b", "deep/c"}) append_file(dir / "source/" + name, name);
    append_file(dir / "source/.metadata.json", "{}");
    auto records = upload(files, dir / "source", "bucket/run", "checkpoint_000000");
    REQUIRE(records);
    Manifest manifest;
    manifest.files = *records;
    REQUIRE(commit(files, "bucket/run", "checkpoint_000000", manifest));
    store->before = [this](const std::string& call, const std::string&) { fetched += call == "download" ? 1 : 0; };
  }

  base::Result<SharedDownload> open() { return SharedDownload::open(files, path, downloads); }
  std::size_t left() const {
    if (!fs::exists(downloads)) return 0;
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(downloads), fs::directory_iterator()));
  }
};

std::vector<std::string> names(const std::string& folder) {
  const auto files = storage::list_files(folder);
  REQUIRE(files);
  std::vector<std::string> all;
  for (const auto& file : *files) all.push_back(file.path);
  return all;
}

const std::vector<std::string> kWhole = {".metadata.json", "a", "b", "deep/c"};

}  // namespace

TEST_CASE("a local checkpoint is used in place") {
  TempDir dir;
  storage::LocalFiles files;
  auto shared = SharedDownload::open(files, dir / "checkpoint", dir / "downloads");
  REQUIRE(shared);
  CHECK(shared->folder() == dir / "checkpoint");
  CHECK_FALSE(fs::exists(dir / "downloads"));
}

TEST_CASE("concurrent users share a download, and the last one removes it") {
  Elsewhere elsewhere;
  {
    auto first = elsewhere.open();
    REQUIRE_MESSAGE(first, (first ? "" : first.error().message()));
    CHECK(names(first->folder()) == kWhole);
    CHECK(elsewhere.fetched == 3);
    {
      auto second = elsewhere.open();
      REQUIRE(second);
      CHECK(second->folder() == first->folder());
      CHECK(elsewhere.fetched == 3);
      SharedDownload moved = *std::move(second);
      moved = *std::move(first);
    }
    CHECK(elsewhere.left() == 0);
  }
  auto again = elsewhere.open();
  REQUIRE(again);
  CHECK(elsewhere.fetched == 6);
  CHECK(names(again->folder()) == kWhole);
}

TEST_CASE("concurrent workers wait for the one that downloads") {
  Elsewhere elsewhere;
  std::latch all_have_it(8);
  std::atomic<int> whole = 0;
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 8; ++i) {
      workers.emplace_back([&] {
        auto shared = elsewhere.open();
        auto listed = shared ? storage::list_files(shared->folder()) : shared.error();
        whole += listed && listed->size() == kWhole.size() ? 1 : 0;
        all_have_it.arrive_and_wait();
      });
    }
  }
  CHECK(whole == 8);
  CHECK(elsewhere.fetched == 3);
  CHECK(elsewhere.left() == 0);
}

TEST_CASE("with users that start and end at any time, each gets a complete download") {
  Elsewhere elsewhere;
  std::atomic<int> whole = 0;
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
      workers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          auto shared = elsewhere.open();
          auto listed = shared ? storage::list_files(shared->folder()) : shared.error();
          whole += listed && listed->size() == kWhole.size() ? 1 : 0;
        }
      });
    }
  }
  CHECK(whole == 200);
  CHECK(elsewhere.left() == 0);
}

TEST_CASE("a partial download of a killed process is never used, and the next one cleans up") {
  Elsewhere elsewhere;
  for (const char* last : {"bucket/run/checkpoint_000000/b", ""}) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      // Killed during the download or while using it.
      elsewhere.store->before = [&](const std::string& call, const std::string& path) {
        if (call == "download" && path == last) ::kill(::getpid(), SIGKILL);
      };
      auto shared = elsewhere.open();
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CHECK(elsewhere.left() > 0);
    auto shared = elsewhere.open();
    REQUIRE(shared);
    CHECK(names(shared->folder()) == kWhole);
    elsewhere.store->put("bucket/run/other/file", "x");
    auto other = SharedDownload::open(elsewhere.files, "bucket/run/other", elsewhere.downloads);
    REQUIRE(other);
  }
  CHECK(elsewhere.left() == 0);
  // Also of another checkpoint.
  append_file(elsewhere.downloads + "/0123456789abcdef.use", "");
  append_file(elsewhere.downloads + "/0123456789abcdef.part/file", "half");
  append_file(elsewhere.downloads + "/0123456789abcdef/file", "whole");
  { REQUIRE(elsewhere.open()); }
  CHECK(elsewhere.left() == 0);
}

TEST_CASE("damage in the store is reported, and the download deleted") {
  Elsewhere elsewhere;
  elsewhere.store->put(elsewhere.path + "/b", "x");
  auto shared = elsewhere.open();
  REQUIRE_FALSE(shared);
  CHECK(shared.error().message().find("fake://bucket/run/checkpoint_000000/b is damaged") != std::string::npos);
  CHECK(elsewhere.left() == 0);
  elsewhere.store->put(elsewhere.path + "/.trireme_manifest.json", "{}");
  CHECK(elsewhere.open().error().message().find("it was truncated or edited") != std::string::npos);
}

TEST_CASE("a folder that no run created is downloaded as is") {
  Elsewhere elsewhere;
  elsewhere.store->put("bucket/theirs/x", "1");
  elsewhere.store->put("bucket/theirs/y/z", "2");
  auto shared = SharedDownload::open(elsewhere.files, "bucket/theirs", elsewhere.downloads);
  REQUIRE(shared);
  CHECK(names(shared->folder()) == std::vector<std::string>{"x", "y/z"});
  CHECK(SharedDownload::open(elsewhere.files, "bucket/absent", elsewhere.downloads).error().message() ==
        "no checkpoint at fake://bucket/absent");
}

TEST_CASE("a new checkpoint with the same name is a separate download") {
  Elsewhere elsewhere;
  auto first = elsewhere.open();
  REQUIRE(first);
  elsewhere.store->put(elsewhere.path + "/.metadata.json", "{\"epoch\": 1}");
  auto second = elsewhere.open();
  REQUIRE(second);
  CHECK(first->folder() != second->folder());
  CHECK(storage::read_file(second->folder() + "/.metadata.json").value() == "{\"epoch\": 1}");
}

TEST_CASE("a folder that is writable by other users is not used") {
  Elsewhere elsewhere;
  fs::create_directory(elsewhere.downloads);
  fs::permissions(elsewhere.downloads, fs::perms::all);
  CHECK(elsewhere.open().error().message().find("is writable by other users") != std::string::npos);
}

}  // namespace shared_download_test
