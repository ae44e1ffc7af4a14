#include "checkpoint/commit.h"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <thread>

#include "checkpoint/replaced.h"
#include "storage/digest.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "unit/storage/fake_store.h"
#include "unit/temp_dir.h"

namespace commit_test {

using namespace trireme;
using namespace trireme::checkpoint;
using storage::FileRecord;
using storage::LocalFiles;
using storage::Take;
using tests::append_file;
using tests::TempDir;
namespace fs = std::filesystem;

namespace {

// A run, with the calls that its controller makes.
struct Run {
  TempDir dir;
  LocalFiles files;
  std::string path = dir / "run";

  Run() { REQUIRE(storage::make_folder(path)); }

  std::vector<FileRecord> put(const std::string& source, const std::string& name, std::optional<Origin> origin = {}) {
    auto records = upload(files, dir / source, path, name, Take::kCopy, origin);
    REQUIRE_MESSAGE(records, (records ? "" : records.error().message()));
    return *records;
  }
  base::Result<Committed> commit_as(const std::string& name, std::int64_t index, std::vector<FileRecord> records,
                                    Metrics metrics = {}) {
    Manifest manifest;
    manifest.index = index;
    manifest.metrics = std::move(metrics);
    manifest.files = std::move(records);
    return commit(files, path, name, std::move(manifest));
  }
  void make(const std::string& source, const std::string& name, std::int64_t index) {
    REQUIRE(commit_as(name, index, put(source, name, Origin{0, index})));
  }
  Listing list() {
    auto listing = list_committed(files, path);
    REQUIRE(listing);
    return *listing;
  }
  std::vector<std::string> names(const std::string& folder = "") {
    auto listed = storage::list_files(path + "/" + folder);
    REQUIRE(listed);
    std::vector<std::string> all;
    for (const auto& file : *listed) all.push_back(file.path);
    return all;
  }
};

using Names = std::vector<std::string>;

std::string message(const auto& result) {
  REQUIRE_FALSE(result);
  return result.error().message();
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("default names are derived from the report") {
  CHECK(default_name(0) == "checkpoint_000000");
  CHECK(default_name(12) == "checkpoint_000012");
  CHECK(default_name(12345678) == "checkpoint_12345678");
}

TEST_CASE("a name stays inside the run folder") {
  for (const std::string& name : {std::string("best"), std::string("checkpoint_000001"), std::string("epoch=3"),
                                  std::string("a b"), std::string("übung"), std::string(200, 'x')}) {
    CAPTURE(name);
    CHECK(check_name(name));
  }
  for (const std::string name :
       {"", ".", "..", "a/b", "/etc", "../x", ".hidden", "logs", "run.json", "events.jsonl", "metrics.csv",
        "metrics.jsonl", "return_value.pkl", "trainer.pkl", "data", "stacks", "tensorboard", "a\nb", "\x7f"}) {
    CAPTURE(name);
    CHECK(contains(message(check_name(name)), "invalid checkpoint name '" + name + "'"));
  }
  CHECK_FALSE(check_name(std::string(201, 'x')));
  CHECK_FALSE(check_name(std::string("a\0b", 3)));
}

TEST_CASE("a checkpoint exists once its manifest does") {
  Run run;
  append_file(run.dir / "rank0/weights", "0000");
  append_file(run.dir / "rank1/shard/weights", "11");
  const auto first = run.put("rank0", "checkpoint_000003");
  const auto second = run.put("rank1", "checkpoint_000003");
  CHECK(run.list().committed.empty());

  auto merged = merge(run.files, run.path, "checkpoint_000003", {{0, first}, {1, second}});
  REQUIRE(merged);
  CHECK(merged->conflicts.empty());
  const Metrics metrics{{"loss", 0.25}, {"worst", std::numeric_limits<double>::infinity()}};
  auto committed = run.commit_as("checkpoint_000003", 3, merged->files, metrics);
  REQUIRE(committed);
  CHECK(committed->path == run.path + "/checkpoint_000003");
  const auto listing = run.list();
  REQUIRE(listing.committed.size() == 1);
  CHECK(listing.committed[0].name == "checkpoint_000003");
  CHECK(listing.committed[0].path == committed->path);
  CHECK(listing.committed[0].manifest == committed->manifest);
  CHECK(listing.committed[0].manifest.metrics == metrics);
  CHECK(listing.committed[0].manifest.files == std::vector<FileRecord>{{"shard/weights", 2, storage::digest_of("11")},
                                                                       {"weights", 4, storage::digest_of("0000")}});
  CHECK(run.names() == Names{"checkpoint_000003/.trireme_manifest.json", "checkpoint_000003/shard/weights",
                             "checkpoint_000003/weights"});
  CHECK(verify(run.files, listing.committed[0], true));
}

TEST_CASE("files written directly into the run folder are not copied") {
  Run run;
  append_file(run.path + "/mine/weights", "w");
  auto records = upload(run.files, run.path + "/mine", run.path, "mine");
  REQUIRE(records);
  CHECK(*records == std::vector<FileRecord>{{"weights", 1, storage::digest_of("w")}});
  REQUIRE(run.commit_as("mine", 0, *records));
  CHECK(run.list().committed.size() == 1);
  // Again with more files: the existing ones are part of it.
  append_file(run.path + "/mine/more", "m");
  records = upload(run.files, run.path + "/mine/../mine", run.path, "mine", Take::kMove, Origin{0, 1});
  REQUIRE(records);
  CHECK(run.list().committed.empty());
  REQUIRE(run.commit_as("mine", 1, *records));
  CHECK(run.names("mine") == Names{".trireme_manifest.json", "more", "weights"});
}

TEST_CASE("a checkpoint created from the files of another has its own manifest") {
  Run run;
  append_file(run.dir / "source/weights", "w");
  run.make("source", "checkpoint_000000", 0);
  auto records = upload(run.files, run.path + "/checkpoint_000000", run.path, "checkpoint_000001");
  REQUIRE(records);
  CHECK(run.list().committed.size() == 1);
  REQUIRE(run.commit_as("checkpoint_000001", 1, *records));
  CHECK(run.list().committed.size() == 2);
  CHECK(run.list().committed[1].manifest.files.size() == 1);
}

TEST_CASE("ranks that write different content to the same file are reported") {
  Run run;
  append_file(run.dir / "rank0/same", "same");
  append_file(run.dir / "rank0/model", "of rank 0");
  append_file(run.dir / "rank3/same", "same");
  append_file(run.dir / "rank3/model", "of rank 3!");
  const auto first = run.put("rank0", "c");
  const auto last = run.put("rank3", "c");
  auto merged = merge(run.files, run.path, "c", {{0, first}, {3, last}});
  REQUIRE(merged);
  CHECK(merged->conflicts == Names{"model: rank 0, 3"});
  CHECK(merged->files == last);
  REQUIRE(run.commit_as("c", 0, merged->files));

  fs::remove(run.path + "/c/model");
  append_file(run.path + "/c/model", "of nobody");
  CHECK(contains(message(merge(run.files, run.path, "c", {{0, first}, {3, last}})), "content that no rank stored"));
}

TEST_CASE("a commit detects missing files and removes unlisted ones") {
  Run run;
  append_file(run.dir / "source/a", "a");
  append_file(run.dir / "source/deep/b", "b");
  const auto records = run.put("source", "c");
  append_file(run.path + "/c/deep/.trireme_tmp_1_1", "of a rank that died");
  append_file(run.path + "/c/other", "of an attempt before");
  fs::rename(run.path + "/c/deep/b", run.path + "/c/deep/x");
  CHECK(message(run.commit_as("c", 0, records)) ==
        "could not commit " + run.path + "/c: " + run.path + "/c/deep/b is missing");
  append_file(run.path + "/c/deep/b", "bb");
  CHECK(contains(message(run.commit_as("c", 0, records)), "c/deep/b has 2 bytes, not 1"));
  CHECK(run.list().committed.empty());
  run.put("source", "c");
  REQUIRE(run.commit_as("c", 0, records));
  CHECK(run.names("c") == Names{".trireme_manifest.json", "a", "deep/b"});
  CHECK(contains(message(run.commit_as("absent", 0, {})), "could not commit"));
  CHECK_FALSE(run.commit_as("../c", 0, {}));
}

TEST_CASE("metadata belongs to a checkpoint and may change") {
  Run run;
  append_file(run.dir / "source/a", "a");
  append_file(run.dir / "source/.metadata.json", "{}");
  run.make("source", "c", 0);
  CHECK(run.names("c") == Names{".metadata.json", ".trireme_manifest.json", "a"});
  REQUIRE(storage::write_file_atomically(run.path + "/c/.metadata.json", "{\"epoch\": 1}"));
  CHECK(verify(run.files, run.list().committed[0], true));
  // The next checkpoint with this name does not inherit it.
  fs::remove(run.dir / "source/.metadata.json");
  run.make("source", "c", 1);
  CHECK(run.names("c") == Names{".trireme_manifest.json", "a"});
}

TEST_CASE("a manifest is replaced when a validation ends") {
  Run run;
  append_file(run.dir / "source/a", "a");
  run.make("source", "c", 0);
  auto manifest = run.list().committed[0].manifest;
  manifest.status = Status::kValidated;
  manifest.metrics["accuracy"] = 0.5;
  REQUIRE(update(run.files, run.path, "c", manifest));
  CHECK(run.list().committed[0].manifest == manifest);
  CHECK(contains(message(update(run.files, run.path, "absent", manifest)), "is not a committed checkpoint"));
  CHECK_FALSE(fs::exists(run.path + "/absent"));
}

TEST_CASE("checkpoints are listed by report, damaged manifests are reported") {
  Run run;
  append_file(run.dir / "source/file", "x");
  for (int index : {10, 2, 7}) run.make("source", index == 7 ? "best" : default_name(index), index);
  append_file(run.path + "/logs/attempt_0/rank_0.log", "x");
  append_file(run.path + "/run.json", "{}");
  append_file(run.path + "/checkpoint_000004/.trireme_manifest.json", "{\"format\": 2");
  const auto listing = run.list();
  REQUIRE(listing.committed.size() == 3);
  CHECK(listing.committed[0].manifest.index == 2);
  CHECK(listing.committed[1].name == "best");
  CHECK(listing.committed[2].manifest.index == 10);
  CHECK(listing.damaged ==
        Names{run.path + "/checkpoint_000004/.trireme_manifest.json cannot be used: it does not end with its "
                         "checksum: it was truncated or edited"});
  CHECK_FALSE(list_committed(run.files, run.path + "/absent"));
  // Damaged checkpoints are kept for inspection.
  REQUIRE(remove_unfinished(run.files, run.path));
  CHECK(run.list().damaged.size() == 1);
}

TEST_CASE("a damaged file is found and named") {
  Run run;
  for (int i = 0; i < 20; ++i) append_file(run.dir / fmt::format("source/{:02}", i), std::string(10000, 'x'));
  run.make("source", "c", 0);
  const auto checkpoint = run.list().committed[0];
  CHECK(verify(run.files, checkpoint, true));
  append_file(run.dir / "large/file", std::string(5 << 20, 'x'));
  append_file(run.dir / "large/second", "x");
  run.make("large", "large", 1);
  CHECK(verify(run.files, run.list().committed[1], true));
  fs::resize_file(run.path + "/large/second", 0);
  append_file(run.path + "/large/second", "y");
  CHECK(contains(message(verify(run.files, run.list().committed[1], true)), "large/second has changed"));
  const std::string path = run.path + "/c/07";
  std::string content(10000, 'x');
  content[5000] = 'y';
  fs::remove(path);
  append_file(path, content);
  CHECK(verify(run.files, checkpoint, false));
  CHECK(message(verify(run.files, checkpoint, true)) == "c is damaged: " + path + " has changed: its XXH3 is " +
                                                            storage::digest_of(content) + ", but the manifest lists " +
                                                            checkpoint.manifest.files[7].xxh3);
  fs::resize_file(path, 9999);
  CHECK(message(verify(run.files, checkpoint, false)) == "c is damaged: " + path + " has 9999 bytes, not 10000");
  fs::remove(path);
  CHECK(message(verify(run.files, checkpoint, false)) == "c is damaged: " + path + " is missing");
  fs::remove_all(run.path + "/c");
  CHECK(contains(message(verify(run.files, checkpoint, false)), "c is damaged"));
}

TEST_CASE("unfinished checkpoints of an attempt are removed, everything else stays") {
  Run run;
  append_file(run.dir / "source/file", "x");
  run.make("source", "checkpoint_000000", 0);
  run.put("source", "checkpoint_000001");
  run.put("source", "chosen");
  REQUIRE(begin(run.files, run.path, "begun", Origin{0, 5}).value() == run.path + "/begun");
  append_file(run.path + "/checkpoint_notes", "a file, not a folder");
  append_file(run.path + "/plots/loss.png", "x");
  // A user's folder, with any name.
  append_file(run.path + "/checkpoint_best/weights", "x");
  append_file(run.path + "/checkpoint_000009/weights", "x");
  fs::create_directory(run.path + "/checkpoint_empty");
  fs::create_directory(run.path + "/checkpoint_000007");  // a crash before the mark
  append_file(run.path + "/marking/.trireme_tmp_1_3", "a crash while the mark was written");
  append_file(run.path + "/checkpoint_000000/.trireme_tmp_1_2", "x");
  REQUIRE(remove_unfinished(run.files, run.path));
  CHECK(run.names() == Names{"checkpoint_000000/.trireme_manifest.json", "checkpoint_000000/file",
                             "checkpoint_000009/weights", "checkpoint_best/weights", "checkpoint_notes",
                             "plots/loss.png"});
  CHECK(fs::exists(run.path + "/checkpoint_empty"));
  for (const char* gone : {"/begun", "/checkpoint_000007", "/marking"}) CHECK_FALSE(fs::exists(run.path + gone));
  CHECK_FALSE(remove_unfinished(run.files, run.path + "/absent"));
}

TEST_CASE("hundreds of remote checkpoints are inspected in parallel, with few calls each") {
  constexpr int kCheckpoints = 500;
  constexpr int kTogether = 8;
  auto store = std::make_shared<tests::FakeStore>();
  for (int i = 0; i < kCheckpoints; ++i) {
    Manifest manifest;
    manifest.index = i;
    store->put(fmt::format("run/{}/{}", default_name(i), kManifestName), encode(manifest));
  }
  // Calls wait for each other: without concurrent calls, the test does not pass.
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  int waiting = 0;
  bool met = false;
  bool alone = false;
  store->before = [&](const std::string& call, const std::string& path) {
    std::unique_lock lock(mutex);
    ++calls;
    if (call != "exists" || !path.ends_with(kManifestName)) return;
    ++waiting;
    met = met || waiting == kTogether;
    changed.notify_all();
    alone = alone || !changed.wait_for(lock, std::chrono::seconds(30), [&] { return met || alone; });
    --waiting;
  };
  storage::RemoteFiles files(store, "far");
  int per_checkpoint = 0;
  SUBCASE("to settle the storage") {
    REQUIRE(remove_unfinished(files, "run"));
    per_checkpoint = 1;
  }
  SUBCASE("to continue the run") {
    auto listing = list_committed(files, "run");
    REQUIRE(listing);
    REQUIRE(listing->committed.size() == kCheckpoints);
    CHECK(listing->committed.back().manifest.index == kCheckpoints - 1);
    per_checkpoint = 2;
  }
  CHECK(met);
  CHECK_FALSE(alone);
  CHECK(calls <= kCheckpoints * per_checkpoint + 5);
}

TEST_CASE("a checkpoint is removed, and removing it again is not an error") {
  Run run;
  append_file(run.dir / "source/deep/file", "x");
  run.make("source", "a", 0);
  run.make("source", "b", 1);
  REQUIRE(checkpoint::remove(run.files, run.path, "a", {0, 0}));
  REQUIRE(checkpoint::remove(run.files, run.path, "a", {0, 0}));
  REQUIRE(forget_dropped(run.files, run.path));
  CHECK(run.names() == Names{"b/.trireme_manifest.json", "b/deep/file"});
  CHECK_FALSE(checkpoint::remove(run.files, run.path, "../run", {0, 0}));
  CHECK_FALSE(checkpoint::remove(run.files, run.path, "logs", {0, 0}));
}

TEST_CASE("a removal keeps a newer folder with the same name") {
  Run run;
  append_file(run.dir / "old/weights", "old");
  append_file(run.dir / "new/weights", "new");
  run.make("old", "slot", 0);
  SUBCASE("another checkpoint") {
    run.make("new", "slot", 2);
    REQUIRE(checkpoint::remove(run.files, run.path, "slot", {0, 0}));
    CHECK(run.list().committed.at(0).manifest.index == 2);
  }
  SUBCASE("a checkpoint of another attempt") {
    REQUIRE(checkpoint::remove(run.files, run.path, "slot", {1, 0}));
    CHECK(run.list().committed.at(0).manifest.index == 0);
  }
  SUBCASE("a checkpoint being written; the one it replaced is removed") {
    const auto records = run.put("new", "slot", Origin{0, 2});
    REQUIRE(checkpoint::remove(run.files, run.path, "slot", {0, 0}));
    CHECK(run.list().committed.empty());
    CHECK(run.names("slot") == Names{".trireme_uploading", "weights"});
    REQUIRE(run.commit_as("slot", 2, records));
    CHECK(verify(run.files, run.list().committed.at(0), true));
    CHECK(run.names() == Names{"slot/.trireme_manifest.json", "slot/weights"});
  }
  SUBCASE("a checkpoint being written; another one it replaced stays") {
    run.make("new", "slot", 2);
    run.put("old", "slot", Origin{0, 4});
    REQUIRE(checkpoint::remove(run.files, run.path, "slot", {0, 0}));
    REQUIRE(run.list().committed.size() == 1);
    CHECK(run.list().committed.at(0).manifest.index == 2);
    CHECK(run.names("slot") == Names{".trireme_uploading", "weights"});
  }
  SUBCASE("a user's folder") {
    REQUIRE(checkpoint::remove(run.files, run.path, "slot", {0, 0}));
    append_file(run.path + "/slot/mine", "x");
    REQUIRE(checkpoint::remove(run.files, run.path, "slot", {0, 0}));
    REQUIRE(forget_dropped(run.files, run.path));
    CHECK(run.names() == Names{"slot/mine"});
  }
  SUBCASE("a checkpoint being written; a rank that has read the old manifest is late") {
    const auto records = run.put("new", "slot", Origin{0, 2});
    REQUIRE(checkpoint::remove(run.files, run.path, "slot", {0, 0}));
    const auto free = set_aside(run.files, run.path, "slot", {0, 0});
    REQUIRE(free);
    CHECK(*free);
    CHECK(run.names("slot") == Names{".trireme_uploading", "weights"});
    REQUIRE(run.commit_as("slot", 2, records));
    CHECK(run.names() == Names{"slot/.trireme_manifest.json", "slot/weights"});
  }
  SUBCASE("nothing is left at the end of the run") {
    REQUIRE(checkpoint::remove(run.files, run.path, "slot", {0, 0}));
    REQUIRE(forget_dropped(run.files, run.path));
    CHECK(fs::is_empty(run.path));
  }
}

// Whether the rank or the retention is first, the new checkpoint is complete.
TEST_CASE("a name is reused while its old checkpoint is being removed") {
  Run run;
  for (const char* source : {"old", "new"}) {
    for (int i = 0; i < 10; ++i) append_file(run.dir / fmt::format("{}/{}", source, i), source);
  }
  run.make("old", "slot", 0);
  for (std::int64_t index = 1; index <= 100; ++index) {
    CAPTURE(index);
    std::optional<std::vector<FileRecord>> records;
    std::optional<std::string> removal;
    {
      std::jthread rank([&] {
        LocalFiles files;
        auto stored = upload(files, run.dir / "new", run.path, "slot", Take::kCopy, Origin{0, index});
        if (stored) records = *std::move(stored);
      });
      std::jthread retention([&] {
        LocalFiles files;
        auto removed = checkpoint::remove(files, run.path, "slot", {0, index - 1});
        if (!removed) removal = removed.error().message();
      });
    }
    CHECK(removal.value_or("") == "");
    REQUIRE(records);
    const auto committed = run.commit_as("slot", index, *records);
    REQUIRE_MESSAGE(committed, (committed ? "" : committed.error().message()));
    REQUIRE(run.list().committed.size() == 1);
    CHECK(verify(run.files, run.list().committed[0], true));
  }
}

TEST_CASE("a replaced checkpoint stays valid until the new one is committed") {
  Run run;
  append_file(run.dir / "old/only_old", "old");
  append_file(run.dir / "old/both", "old");
  append_file(run.dir / "new/both", "new");
  run.make("old", "best", 3);
  const auto records = run.put("new", "best", Origin{0, 5});
  auto listing = run.list();
  REQUIRE(listing.committed.size() == 1);
  CHECK(listing.committed[0].name == "best");
  CHECK(listing.committed[0].manifest.index == 3);
  CHECK(verify(run.files, listing.committed[0], true));

  SUBCASE("and is removed then") {
    REQUIRE(run.commit_as("best", 5, records));
    listing = run.list();
    REQUIRE(listing.committed.size() == 1);
    CHECK(listing.committed[0].manifest.index == 5);
    CHECK(run.names() == Names{"best/.trireme_manifest.json", "best/both"});
  }
  SUBCASE("and is restored if that does not happen") {
    REQUIRE(remove_unfinished(run.files, run.path));
    listing = run.list();
    REQUIRE(listing.committed.size() == 1);
    CHECK(listing.committed[0].manifest.index == 3);
    CHECK(listing.committed[0].path == run.path + "/best");
    CHECK(verify(run.files, listing.committed[0], true));
    CHECK(run.names() == Names{"best/.trireme_manifest.json", "best/both", "best/only_old"});
  }
  SUBCASE("and stays aside if the manifest of the new one is damaged") {
    REQUIRE(run.commit_as("best", 5, records));
    run.put("old", "best", Origin{0, 6});
    append_file(run.path + "/best/.trireme_manifest.json", "rubbish");
    REQUIRE(remove_unfinished(run.files, run.path));
    CHECK(run.list().committed.size() == 1);
    CHECK(run.list().committed[0].manifest.index == 5);
    CHECK(run.list().damaged.size() == 1);
  }
}

TEST_CASE("a late rank does not undo a commit") {
  Run run;
  append_file(run.dir / "source/file", "x");
  run.make("source", "best", 3);
  for (Origin late : {Origin{0, 3}, Origin{0, 2}}) {
    CHECK(contains(message(upload(run.files, run.dir / "source", run.path, "best", Take::kCopy, late)),
                   "the files are too late: " + run.path + "/best was committed (report 3, attempt 0) without them"));
    CHECK_FALSE(begin(run.files, run.path, "best", late));
  }
  CHECK(run.list().committed.size() == 1);
  // A later attempt repeats reports.
  CHECK(upload(run.files, run.dir / "source", run.path, "best", Take::kCopy, Origin{1, 2}));
}

TEST_CASE("reports that share a name do not mix") {
  Run run;
  append_file(run.dir / "source/file", "x");
  const auto records = run.put("source", "best", Origin{0, 3});
  run.put("source", "best", Origin{0, 5});
  CHECK(contains(message(run.commit_as("best", 3, records)), "of report 3: report 5 writes to it"));
  CHECK(contains(message(upload(run.files, run.dir / "source", run.path, "best", Take::kCopy, Origin{0, 3})),
                 "already in use by report 5"));
  CHECK(run.commit_as("best", 5, records));
}

TEST_CASE("many ranks may begin at once") {
  Run run;
  append_file(run.dir / "old/file", "x");
  run.make("old", "best", 0);
  for (int rank = 0; rank < 8; ++rank) append_file(run.dir / fmt::format("rank{}/{}", rank, rank), "x");
  std::map<int, std::vector<FileRecord>> by_rank;
  for (int rank = 0; rank < 8; ++rank) by_rank[rank];
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> ranks;
    for (auto& [rank, records] : by_rank) {
      ranks.emplace_back([&run, &failures, rank = rank, &records = records] {
        LocalFiles files;
        auto stored = upload(files, run.dir / fmt::format("rank{}", rank), run.path, "best", Take::kCopy, Origin{0, 1});
        if (stored) records = *stored;
        failures += stored ? 0 : 1;
      });
    }
  }
  REQUIRE(failures == 0);
  CHECK(run.list().committed[0].manifest.index == 0);
  auto merged = merge(run.files, run.path, "best", by_rank);
  REQUIRE(merged);
  REQUIRE(run.commit_as("best", 1, merged->files));
  CHECK(run.names("best") == Names{".trireme_manifest.json", "0", "1", "2", "3", "4", "5", "6", "7"});
}

TEST_CASE("errors name the file") {
  Run run;
  CHECK(message(upload(run.files, run.dir / "absent", run.path, "c")) ==
        "the checkpoint folder " + (run.dir / "absent") + " does not exist");
  append_file(run.dir / "file", "x");
  CHECK(contains(message(upload(run.files, run.dir / "file", run.path, "c")), "is not a folder"));
  CHECK_FALSE(fs::exists(run.path + "/c"));
  CHECK_FALSE(upload(run.files, run.dir.path(), run.path, "logs"));
}

TEST_CASE("files written by user code into a folder that does not exist yet") {
  Run run;
  REQUIRE(announce(run.files, run.path, "best", Origin{0, 3}));
  CHECK_FALSE(fs::exists(run.path + "/best"));
  append_file(run.path + "/best/weights", "w");
  SUBCASE("are adopted") {
    auto records = adopt(run.files, run.path, "best", Origin{0, 3});
    REQUIRE(records);
    REQUIRE(records->size() == 1);
    CHECK(run.names() == std::vector<std::string>{"best/.trireme_uploading", "best/weights"});
    REQUIRE(run.commit_as("best", 3, *records));
    CHECK(run.names("best") == std::vector<std::string>{".trireme_manifest.json", "weights"});
  }
  SUBCASE("are removed if their writer was interrupted") {
    REQUIRE(remove_unfinished(run.files, run.path));
    CHECK(run.names().empty());
    CHECK_FALSE(fs::exists(run.path + "/best"));
  }
  SUBCASE("may include the manifest of the checkpoint they were copied from") {
    append_file(run.dir / "mine/weights", "w");
    run.make("mine", "before", 1);
    fs::copy(run.path + "/before", run.path + "/best",
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    auto records = adopt(run.files, run.path, "best", Origin{0, 3});
    REQUIRE(records);
    REQUIRE(run.commit_as("best", 3, *records));
    CHECK(run.list().committed.back().manifest.index == 3);
  }
}

TEST_CASE("announcing a name again makes room for the new files") {
  Run run;
  append_file(run.dir / "mine/weights", "old");
  run.make("mine", "best", 1);
  REQUIRE(announce(run.files, run.path, "best", Origin{0, 2}));
  CHECK_FALSE(fs::exists(run.path + "/best"));
  SUBCASE("and is replaced") {
    append_file(run.path + "/best/weights", "new");
    auto records = adopt(run.files, run.path, "best", Origin{0, 2});
    REQUIRE(records);
    REQUIRE(run.commit_as("best", 2, *records));
    REQUIRE(run.list().committed.size() == 1);
    CHECK(run.list().committed[0].manifest.index == 2);
  }
  SUBCASE("and is restored if that was never finished") {
    append_file(run.path + "/best/weights", "half");
    REQUIRE(remove_unfinished(run.files, run.path));
    REQUIRE(run.list().committed.size() == 1);
    CHECK(run.list().committed[0].manifest.index == 1);
    CHECK(verify(run.files, run.list().committed[0], true));
  }
}

}  // namespace commit_test
