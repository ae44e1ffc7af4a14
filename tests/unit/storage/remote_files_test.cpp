#include "storage/remote_files.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/commit.h"
#include "storage/digest.h"
#include "storage/local_files.h"
#include "storage/paths.h"
#include "unit/environment.h"
#include "unit/storage/fake_store.h"
#include "unit/temp_dir.h"

namespace remote_files_test {

using namespace trireme;
using namespace trireme::storage;
using tests::append_file;
using tests::FakeStore;
using tests::TempDir;
namespace fs = std::filesystem;

namespace {

struct Remote {
  std::shared_ptr<FakeStore> store = std::make_shared<FakeStore>();
  std::mutex mutex;
  std::vector<double> pauses;
  RemoteFiles files{store, "fake", {.sleep = [this](base::Seconds pause) {
                      std::lock_guard lock(mutex);
                      pauses.push_back(pause.count());
                    }}};
};

std::string message(const auto& result) {
  REQUIRE_FALSE(result);
  return result.error().message();
}

std::vector<std::string> names(const std::string& folder) {
  const auto files = list_files(folder);
  REQUIRE(files);
  std::vector<std::string> all;
  for (const auto& file : *files) all.push_back(file.path);
  return all;
}

}  // namespace

TEST_CASE("a folder is uploaded and downloaded") {
  TempDir dir;
  Remote remote;
  append_file(dir / "from/model.bin", std::string(3 << 20, 'm'));
  append_file(dir / "from/empty", "");
  for (int i = 0; i < 40; ++i) append_file(dir / fmt::format("from/shards/{}", i), fmt::format("shard {}", i));
  append_file(dir / "from/.trireme_manifest.json", "of another checkpoint");
  auto records = remote.files.put_folder(dir / "from", "bucket/run/c", Take::kCopy);
  REQUIRE(records);
  CHECK(records->size() == 42);
  CHECK((*records)[0] == FileRecord{"empty", 0, digest_of("")});
  CHECK(remote.store->objects().size() == 42);
  CHECK(remote.store->objects().at("bucket/run/c/shards/7") == "shard 7");

  REQUIRE(remote.files.get_folder("bucket/run/c", *records, dir / "to"));
  fs::remove(dir / "from/.trireme_manifest.json");
  CHECK(names(dir / "to") == names(dir / "from"));
  CHECK(read_file(dir / "to/shards/39").value() == "shard 39");
  CHECK(remote.files.adopt_folder("bucket/run/c").value() == *records);
  CHECK(remote.files.checksum("bucket/run/c/shards/7").value() == digest_of("shard 7"));
  CHECK(remote.files.list_files("bucket/run/c").value().front().path == "empty");
  CHECK(remote.files.list_folders("bucket/run/c").value() == std::vector<std::string>{"shards"});
  CHECK(remote.pauses.empty());
}

TEST_CASE("failed calls are retried with backoff") {
  Remote remote;
  int failures = 0;
  remote.store->before = [&](const std::string& call, const std::string&) {
    if (call == "write" && failures++ < 4) throw std::runtime_error("503 slow down");
  };
  REQUIRE(remote.files.write_atomically("a", "x"));
  REQUIRE(remote.pauses.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(remote.pauses[i] >= 0.75 * std::pow(2, i));
    CHECK(remote.pauses[i] <= 1.25 * std::pow(2, i));
  }
  failures = -1000000;
  remote.store->before = [](const std::string&, const std::string&) { throw 7; };
  CHECK(message(remote.files.write_atomically("bucket/a", "x")) ==
        "could not write fake://bucket/a, tried 5 times: an exception that is not a std::exception was thrown");
  remote.store->before = [](const std::string&, const std::string&) { throw std::runtime_error("access denied"); };
  base::set_log_level(base::LogLevel::kError);  // without this, each retry would be logged
  CHECK(message(remote.files.exists("bucket/a")) == "could not access fake://bucket/a, tried 5 times: access denied");
  CHECK(message(remote.files.list_files("b")) == "could not list fake://b, tried 5 times: access denied");
  CHECK_FALSE(remote.files.list_folders("b"));
  CHECK_FALSE(remote.files.make_folder("b"));
  CHECK_FALSE(remote.files.remove_file("b"));
  CHECK_FALSE(remote.files.remove_folder("b"));
  base::set_log_level(base::LogLevel::kInfo);
}

TEST_CASE("missing files are not retried") {
  TempDir dir;
  Remote remote;
  CHECK(message(remote.files.read("bucket/absent")) == "could not read fake://bucket/absent: it does not exist");
  CHECK(message(remote.files.checksum("bucket/absent")) == "could not read fake://bucket/absent: it does not exist");
  CHECK(message(remote.files.get_folder("bucket", {{"absent", 1, ""}}, dir / "to")) ==
        "could not download fake://bucket/absent: it does not exist");
  CHECK(message(remote.files.put_folder(dir / "nowhere", "bucket", Take::kCopy)).find("nowhere") != std::string::npos);
  CHECK(message(remote.files.same_folder(dir / "nowhere", "bucket")) ==
        "the checkpoint folder " + (dir / "nowhere") + " does not exist");
  CHECK(remote.pauses.empty());
  CHECK(names(dir / "to").empty());
}

TEST_CASE("a local file that is removed or changed during its upload is an error") {
  TempDir dir;
  Remote remote;
  append_file(dir / "from/a", "content");
  remote.store->before = [&](const std::string& call, const std::string&) {
    if (call == "upload") fs::remove(dir / "from/a");
  };
  CHECK(
      message(remote.files.put_folder(dir / "from", "b", Take::kCopy)).find("was removed while it was being stored") !=
      std::string::npos);
  append_file(dir / "from/a", "content");
  remote.store->before = [&](const std::string& call, const std::string&) {
    if (call == "upload") append_file(dir / "from/a", "more");
  };
  CHECK(message(remote.files.put_folder(dir / "from", "b", Take::kCopy)).find("changed while it was being stored") !=
        std::string::npos);
  CHECK(remote.pauses.empty());
}

TEST_CASE("a damaged download is an error that names the file, and is deleted") {
  TempDir dir;
  Remote remote;
  remote.store->put("c/good", "good");
  remote.store->put("c/bad", "bad!");
  auto get = [&](FileRecord wanted) { return message(remote.files.get_folder("c", {wanted}, dir / "to")); };
  CHECK(get({"bad", 3, digest_of("bad")}) == "fake://c/bad is damaged: it has 4 bytes, but its manifest lists 3");
  CHECK(get({"bad", 4, digest_of("bade")}) ==
        "fake://c/bad is damaged: its XXH3 is " + digest_of("bad!") + ", but its manifest lists " + digest_of("bade"));
  CHECK(get({"../good", 4, ""}).find("'../good' is not a relative path inside") != std::string::npos);
  CHECK(names(dir / "to").empty());
  REQUIRE(remote.files.get_folder("c", {{"good", 4, digest_of("good")}, {"bad", 4, ""}}, dir / "to"));
  CHECK(names(dir / "to") == std::vector<std::string>{"bad", "good"});
}

TEST_CASE("checkpoints are committed, listed, replaced and removed in a store") {
  TempDir dir;
  Remote remote;
  using namespace checkpoint;
  append_file(dir / "a/weights", "1");
  append_file(dir / "b/other", "22");
  auto put = [&](const std::string& source, const std::string& name, int index) {
    auto records = upload(remote.files, dir / source, "bucket/run", name, Take::kCopy, Origin{0, index});
    REQUIRE(records);
    Manifest manifest;
    manifest.index = index;
    manifest.files = *records;
    REQUIRE(commit(remote.files, "bucket/run", name, manifest));
  };
  put("a", "checkpoint_000000", 0);
  put("a", "best", 1);
  put("b", "best", 2);
  auto listing = list_committed(remote.files, "bucket/run");
  REQUIRE(listing);
  REQUIRE(listing->committed.size() == 2);
  CHECK(listing->committed[1].manifest.index == 2);
  for (const auto& each : listing->committed) CHECK(verify(remote.files, each, true));
  CHECK_FALSE(remote.store->objects().contains("bucket/run/best/weights"));

  REQUIRE(upload(remote.files, dir / "a", "bucket/run", "checkpoint_000003"));
  REQUIRE(remove_unfinished(remote.files, "bucket/run"));
  REQUIRE(checkpoint::remove(remote.files, "bucket/run", "checkpoint_000000", {0, 0}));
  CHECK(list_committed(remote.files, "bucket/run")->committed.size() == 1);
  CHECK(remote.store->objects().size() == 2);  // the file and the manifest of "best"
  remote.store->put("bucket/run/best/other", "23");
  CHECK(message(verify(remote.files, list_committed(remote.files, "bucket/run")->committed[0], true))
            .find("fake://bucket/run/best/other has changed") != std::string::npos);
}

TEST_CASE("permission is checked before every try") {
  auto store = std::make_shared<FakeStore>();
  int calls = 0;
  int asked = 0;
  store->before = [&](const std::string&, const std::string&) {
    ++calls;
    throw std::runtime_error("503");
  };
  storage::RetryPolicy policy;
  policy.sleep = [](base::Seconds) {};
  policy.permit = [&]() -> base::Result<void> {
    if (++asked <= 2) return {};
    return base::error("no longer");
  };
  storage::RemoteFiles files(store, "far", policy);
  auto written = files.write_atomically("a", "b");
  REQUIRE_FALSE(written);
  CHECK(written.error().message() == "could not write far://a: no longer");
  CHECK(calls == 2);
  CHECK(asked == 3);
}

TEST_CASE("temporary names cannot be guessed, and their files are created before use") {
  CHECK(storage::temporary_in("x") != storage::temporary_in("x"));
  CHECK(storage::temporary_in("x").find(std::to_string(::getpid()) + "_") == std::string::npos);
  // Also in a forked child.
  int names[2];
  REQUIRE(::pipe(names) == 0);
  const std::string before = storage::temporary_in("x");
  const int child = ::fork();
  if (child == 0) {
    const std::string name = storage::temporary_in("x");
    (void)!::write(names[1], name.data(), name.size());
    ::_exit(0);
  }
  const std::string own = storage::temporary_in("x");
  std::string other(own.size(), 0);
  REQUIRE(::read(names[0], other.data(), other.size()) == static_cast<ssize_t>(own.size()));
  ::waitpid(child, nullptr, 0);
  ::close(names[0]);
  ::close(names[1]);
  CHECK(other != own);

  auto store = std::make_shared<FakeStore>();
  store->put("a", "content");
  TempDir dir;
  const tests::Environment environment("TMPDIR", dir.path());
  bool found = false;
  store->before = [&](const std::string& call, const std::string&) {
    if (call != "download") return;
    for (const auto& entry : std::filesystem::directory_iterator(dir.path())) found = entry.is_regular_file();
  };
  REQUIRE(storage::RemoteFiles(store, "far").checksum("a"));
  CHECK(found);
  CHECK(std::filesystem::is_empty(dir.path()));
}

}  // namespace remote_files_test
