#include "control/committer.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <atomic>
#include <future>

#include "checkpoint/commit.h"
#include "checkpoint/replaced.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "storage/retry.h"
#include "unit/folder_file_system.h"
#include "unit/storage/fake_store.h"
#include "unit/storage/memory_disk.h"
#include "unit/temp_dir.h"

namespace committer_test {

using namespace trireme;
using namespace trireme::control;
using trireme::tests::append_file;
using trireme::tests::TempDir;

namespace {

using Names = std::vector<std::string>;

struct Desk {
  TempDir dir;
  std::shared_ptr<storage::Files> files = std::make_shared<storage::LocalFiles>();
  std::string run = dir / "run";
  std::mutex mutex;
  std::vector<std::string> warnings;
  std::optional<Committer> committer;

  Desk() {
    std::filesystem::create_directories(run);
    append_file(run + "/events.jsonl", "{}\n");
    committer.emplace(Committer::Place{files, run, run}, [this](std::string message) {
      const std::lock_guard lock(mutex);
      warnings.push_back(std::move(message));
    });
  }

  base::Fd log() const { return base::Fd(::open((run + "/events.jsonl").c_str(), O_RDWR | O_CLOEXEC)); }

  // The upload of a rank before the commit.
  List upload(const std::string& name, const std::string& file, const std::string& text) {
    TempDir source;
    append_file(source / file, text);
    auto records = checkpoint::upload(*files, source.path(), run, name);
    REQUIRE(records);
    return checkpoint::to_list(*records);
  }
  ReadyCheckpoint ready(std::int64_t index) {
    ReadyCheckpoint made;
    made.index = index;
    made.name = checkpoint::default_name(index);
    made.metrics = {{"loss", index}};
    made.files[0] = upload(made.name, "weights", "of report " + std::to_string(index));
    return made;
  }
  CommitEnded commit(ReadyCheckpoint made, base::Fd event_log, std::optional<std::string> collected = {}) {
    std::promise<CommitEnded> ended;
    committer->commit(std::move(made), 3, 1234.5, std::move(event_log), std::move(collected),
                      [&](CommitEnded end) { ended.set_value(std::move(end)); });
    return ended.get_future().get();
  }
  CommitEnded commit(ReadyCheckpoint made) { return commit(std::move(made), log()); }

  std::vector<checkpoint::Committed> committed() {
    auto listing = checkpoint::list_committed(*files, run);
    REQUIRE(listing);
    CHECK(listing->damaged.empty());
    return listing->committed;
  }
  Names names() {
    Names found;
    for (const auto& each : committed()) found.push_back(each.name);
    return found;
  }
};

base::Result<std::optional<std::string>> settle(Committer& committer, std::optional<std::string> checkpoint = {}) {
  std::promise<base::Result<std::optional<std::string>>> done;
  committer.settle(std::move(checkpoint), [&](auto settled) { done.set_value(std::move(settled)); });
  return done.get_future().get();
}

}  // namespace

TEST_CASE("files that nodes held in memory are moved to the storage before the commit") {
  Desk desk;
  ReadyCheckpoint ready;
  ready.name = checkpoint::default_name(7);
  ready.index = 7;
  const std::string collected = desk.dir / "collected";
  append_file(collected + "/rank_1/weights", "of rank 1");
  storage::LocalFiles local;
  ready.files[1] = checkpoint::to_list(local.adopt_folder(collected).value());
  ready.nodes[1] = 2;
  CHECK_FALSE(desk.commit(ready, desk.log(), collected).failure);
  REQUIRE(desk.names() == Names{"checkpoint_000007"});
  CHECK(storage::read_file(desk.run + "/checkpoint_000007/rank_1/weights").value() == "of rank 1");
  CHECK_FALSE(std::filesystem::exists(collected));
}

TEST_CASE("a commit writes the manifest of the files of all ranks") {
  Desk desk;
  ReadyCheckpoint ready = desk.ready(7);
  ready.files[1] = desk.upload(ready.name, "more/of_rank_1", "part");
  ready.validation = Dict{{"fn_kwargs", Dict()}};
  const CommitEnded end = desk.commit(ready);
  CHECK_FALSE(end.failure);
  CHECK(end.conflicts.empty());
  CHECK(end.checkpoint.index == 7);
  CHECK(end.checkpoint.metrics == ready.metrics);
  CHECK(end.checkpoint.validation == ready.validation);
  CHECK(end.checkpoint.files.empty());  // thousands of names that are no longer needed
  const auto committed = desk.committed();
  REQUIRE(committed.size() == 1);
  const auto& manifest = committed[0].manifest;
  CHECK(manifest.index == 7);
  CHECK(manifest.attempt == 3);
  CHECK(manifest.time == 1234.5);
  CHECK(manifest.metrics == Metrics{{"loss", 7}});
  CHECK(manifest.status == checkpoint::Status::kPendingValidation);
  CHECK(manifest.validation == ready.validation);
  REQUIRE(manifest.files.size() == 2);
  CHECK(manifest.files[0].path == "more/of_rank_1");
  CHECK(manifest.files[1].path == "weights");
  CHECK(checkpoint::verify(*desk.files, committed[0], true));
}

TEST_CASE("ranks that stored different content for a file are reported") {
  Desk desk;
  ReadyCheckpoint ready = desk.ready(0);
  ready.files[2] = desk.upload(ready.name, "weights", "other content, and longer");
  const CommitEnded end = desk.commit(ready);
  CHECK_FALSE(end.failure);
  CHECK(end.conflicts == Names{"weights: rank 0, 2"});
  CHECK(checkpoint::verify(*desk.files, desk.committed().at(0), true));
}

TEST_CASE("a failed commit reports the reason") {
  Desk desk;
  ReadyCheckpoint ready = desk.ready(0);
  CommitEnded end;
  std::string why;
  SUBCASE("missing files") {
    std::filesystem::remove_all(desk.run + "/checkpoint_000000");
    end = desk.commit(ready);
    why = "checkpoint_000000: No such file or directory";
  }
  SUBCASE("truncated files") {
    std::filesystem::resize_file(desk.run + "/checkpoint_000000/weights", 3);
    end = desk.commit(ready);
    why = "checkpoint_000000/weights has 3 bytes";
  }
  SUBCASE("an invalid list") {
    ready.files[4] = List{1};
    end = desk.commit(ready);
    why = "the files of rank 4";
  }
  SUBCASE("an event log that cannot be synced: the manifest is not written") {
    end = desk.commit(ready, base::Fd());
    why = "could not sync the event log";
  }
  REQUIRE(end.failure);
  CAPTURE(*end.failure);
  CHECK(end.failure->find(why) != std::string::npos);
  CHECK(end.checkpoint.index == 0);
  CHECK(desk.committed().empty());
}

TEST_CASE("a disk that fails while the manifest is written") {
  auto disk = std::make_shared<storage::MemoryDisk>();
  auto files = std::make_shared<storage::LocalFiles>(disk);
  REQUIRE(files->make_folder("/run/checkpoint_000000"));
  Desk desk;
  Committer committer({files, "/run", "/run"}, [](const std::string&) { FAIL("there is nothing to warn of"); });
  auto commit = [&] {
    std::promise<CommitEnded> ended;
    committer.commit({0, "checkpoint_000000", {}, {}, {}, {}, {}, {}}, 0, 0, desk.log(), {},
                     [&](CommitEnded end) { ended.set_value(std::move(end)); });
    return ended.get_future().get();
  };
  disk->fail_at(disk->operations(), ENOSPC, 1000);
  const CommitEnded failed = commit();
  REQUIRE(failed.failure);
  CHECK(failed.failure->find("No space left") != std::string::npos);
  disk->fail_at(disk->operations(), 0, 0);
  // The thread still works for the next one.
  CHECK_FALSE(commit().failure);
}

TEST_CASE("jobs are done in order, and before the end") {
  Desk desk;
  std::mutex mutex;
  std::vector<std::int64_t> ended;
  for (int i = 0; i < 20; ++i) {
    desk.committer->commit(desk.ready(i), 0, 0, desk.log(), {}, [&](const CommitEnded& end) {
      const std::lock_guard lock(mutex);
      CHECK_FALSE(end.failure);
      ended.push_back(end.checkpoint.index);
    });
    if (i % 2 == 1) desk.committer->remove(checkpoint::default_name(i - 1), {0, i - 1});
  }
  desk.committer.reset();
  std::vector<std::int64_t> all;
  Names odd;
  for (int i = 0; i < 20; ++i) {
    all.push_back(i);
    if (i % 2 == 1) odd.push_back(checkpoint::default_name(i));
  }
  CHECK(ended == all);
  CHECK(desk.names() == odd);
  CHECK(desk.warnings.empty());
}

TEST_CASE("the result of a validation is stored in the manifest") {
  Desk desk;
  ReadyCheckpoint ready = desk.ready(1);
  ready.validation = Dict{{"fn_kwargs", Dict()}};
  CHECK_FALSE(desk.commit(ready).failure);
  const auto before = desk.committed().at(0).manifest;
  desk.committer->update({1, ready.name, {{"loss", 1}, {"acc", 0.5}}, checkpoint::Status::kValidated, {}, 3});
  desk.committer->update({9, "absent", {}, checkpoint::Status::kValidated, {}});
  REQUIRE(settle(*desk.committer));
  auto after = desk.committed().at(0).manifest;
  CHECK(after.status == checkpoint::Status::kValidated);
  CHECK(after.metrics == Metrics{{"loss", 1}, {"acc", 0.5}});
  CHECK(after.validation.is_null());
  CHECK(after.files == before.files);
  CHECK(after.time == before.time);
  // The other one was removed manually, which does not end the run.
  REQUIRE(desk.warnings.size() == 1);
  CHECK(desk.warnings[0].find("could not store the result of a validation") == 0);
}

TEST_CASE("nothing is written to a folder that another driver has taken over") {
  Desk desk;
  auto store = std::make_shared<tests::FakeStore>();
  auto files = std::make_shared<storage::RemoteFiles>(store, "far");
  auto begin = [&](std::int64_t index) {
    TempDir source;
    append_file(source / "weights", "w");
    auto records = checkpoint::upload(*files, source.path(), "run", checkpoint::default_name(index));
    REQUIRE(records);
    return ReadyCheckpoint{index, checkpoint::default_name(index),      {}, {},
                           {},    {{0, checkpoint::to_list(*records)}}, {}};
  };
  std::atomic<bool> lost = false;
  auto fenced = files->with_policy([&](storage::RetryPolicy& policy) {
    policy.sleep = [](base::Seconds) {};
    policy.permit = [&]() -> base::Result<void> {
      if (lost) return base::error("another driver has it");
      return {};
    };
  });
  std::vector<std::string> warnings;
  std::optional<Committer> committer;
  committer.emplace(Committer::Place{fenced, "run", desk.run},
                    [&](std::string message) { warnings.push_back(std::move(message)); });
  auto commit = [&](ReadyCheckpoint ready) {
    std::promise<CommitEnded> ended;
    committer->commit(std::move(ready), 0, 0, desk.log(), {},
                      [&](CommitEnded end) { ended.set_value(std::move(end)); });
    return ended.get_future().get();
  };
  CHECK_FALSE(commit(begin(0)).failure);
  const auto ready = begin(1);
  SUBCASE("before the commit starts") {
    lost = true;
    const auto before = store->objects();
    CHECK(commit(ready).failure.value_or("").find("another driver has it") != std::string::npos);
    committer->remove("checkpoint_000000", {0, 0});
    committer->mirror(true);
    CHECK_FALSE(settle(*committer));
    committer.reset();
    CHECK(store->objects() == before);
    CHECK(warnings.size() == 2);
  }
  SUBCASE("between two tries of the manifest") {
    store->before = [&](const std::string& call, const std::string& path) {
      if (call != "write" || !path.ends_with(checkpoint::kManifestName)) return;
      lost = true;
      throw std::runtime_error("connection reset");
    };
    CHECK(commit(ready).failure.value_or("").find("another driver has it") != std::string::npos);
    CHECK(checkpoint::list_committed(*files, "run")->committed.size() == 1);
  }
}

TEST_CASE("the result of a validation is not stored in a newer checkpoint with that name") {
  Desk desk;
  CHECK_FALSE(desk.commit(desk.ready(1)).failure);
  const auto before = desk.committed().at(0).manifest;
  desk.committer->update({1, "checkpoint_000001", {{"acc", 0.5}}, checkpoint::Status::kValidated, {}, 2});
  desk.committer->update({0, "checkpoint_000001", {{"acc", 0.5}}, checkpoint::Status::kValidated, {}, 3});
  desk.committer->remove("checkpoint_000001", {2, 1});
  REQUIRE(settle(*desk.committer));
  CHECK(desk.committed().at(0).manifest == before);
  CHECK(desk.warnings.empty());
}

TEST_CASE("removing a missing checkpoint succeeds") {
  Desk desk;
  desk.committer->remove("absent", {0, 0});
  REQUIRE(settle(*desk.committer));
  CHECK(desk.warnings.empty());
}

TEST_CASE("settling removes incomplete files of an attempt") {
  Desk desk;
  CHECK_FALSE(desk.commit(desk.ready(0)).failure);
  desk.upload("checkpoint_000001", "weights", "without a manifest");
  desk.upload("best", "weights", "without a manifest");
  REQUIRE(settle(*desk.committer));
  CHECK(desk.names() == Names{"checkpoint_000000"});
  for (const char* name : {"/checkpoint_000001", "/best"}) CHECK_FALSE(std::filesystem::exists(desk.run + name));
  CHECK(std::filesystem::exists(desk.run + "/events.jsonl"));
}

TEST_CASE("a checkpoint whose name was about to be reused is found again after settling") {
  Desk desk;
  ReadyCheckpoint slot;
  slot.name = "slot";
  slot.files[0] = desk.upload("slot", "weights", "old");
  CHECK_FALSE(desk.commit(slot).failure);
  // A rank has begun the next one when its driver is killed.
  REQUIRE(checkpoint::set_aside(*desk.files, desk.run, "slot", {3, 0}).value());
  desk.upload("slot", "weights", "new");
  const std::string listed = desk.committed().at(0).path;
  CHECK(listed.find(checkpoint::kReplacedName) != std::string::npos);
  SUBCASE("by the next attempt") {
    CHECK(settle(*desk.committer, listed).value() == desk.run + "/slot");
    CHECK(settle(*desk.committer, desk.run + "/slot").value() == desk.run + "/slot");
  }
  SUBCASE("when the run ends") { desk.committer->end_reuse(); }
  desk.committer.reset();
  CHECK(desk.committed().at(0).path == desk.run + "/slot");
  CHECK(storage::read_file(desk.run + "/slot/weights").value() == "old");
  CHECK(desk.warnings.empty());
}

TEST_CASE("a local run needs no mirror") {
  Desk desk;
  const auto before = storage::list_files(desk.run);
  desk.committer->mirror(false);
  desk.committer->mirror(true);
  desk.committer.reset();
  CHECK(desk.warnings.empty());
  CHECK(storage::list_files(desk.run)->size() == before->size());
}

TEST_CASE("remote storage gets the run's own files") {
  TempDir far;
  Desk desk;
  auto file_system = std::make_shared<tests::FolderFileSystem>(far.path());
  storage::RetryPolicy brief;
  brief.tries = 2;
  brief.first_pause = base::Seconds(0.001);
  auto files = std::make_shared<storage::RemoteFiles>(file_system, "far", brief);
  std::vector<std::string> warnings;
  std::optional<Committer> committer;
  committer.emplace(Committer::Place{files, "bucket/run", desk.run},
                    [&](std::string message) { warnings.push_back(std::move(message)); });
  append_file(desk.run + "/run.json", "{}");
  append_file(desk.run + "/logs/attempt_0/rank_0.log", "hello");
  append_file(desk.run + "/metrics.csv", "step");
  auto there = [&](const std::string& name) { return storage::read_file(far / ("bucket/run/" + name)); };

  committer->mirror(false);
  REQUIRE(settle(*committer));
  CHECK(there("run.json").value() == "{}");
  CHECK(there("events.jsonl").value() == "{}\n");
  CHECK_FALSE(there("metrics.csv"));

  SUBCASE("and all of them at the end") {
    append_file(desk.run + "/events.jsonl", "{}\n");
    committer->mirror(true);
    committer.reset();
    CHECK(there("events.jsonl").value() == "{}\n{}\n");
    CHECK(there("metrics.csv").value() == "step");
    CHECK(there("logs/attempt_0/rank_0.log").value() == "hello");
    CHECK(warnings.empty());
  }
  SUBCASE("and a warning if it is unavailable") {
    file_system->set_away(true);
    committer->mirror(false);
    committer->remove("checkpoint_000000", {0, 0});
    committer.reset();
    REQUIRE(warnings.size() == 2);
    CHECK(warnings[0].find("could not store the run's own files") == 0);
    CHECK(warnings[0].find("the storage is away") != std::string::npos);
    CHECK(warnings[1].find("could not remove an old checkpoint") == 0);
  }
  SUBCASE("and checkpoints like local storage") {
    TempDir source;
    append_file(source / "weights", "w");
    auto records = checkpoint::upload(*files, source.path(), "bucket/run", "checkpoint_000000");
    REQUIRE(records);
    std::promise<CommitEnded> ended;
    committer->commit({0, "checkpoint_000000", {}, {}, {}, {{0, checkpoint::to_list(*records)}}, {}, {}}, 0, 0,
                      desk.log(), {}, [&](CommitEnded end) { ended.set_value(std::move(end)); });
    CHECK_FALSE(ended.get_future().get().failure);
    auto listing = checkpoint::list_committed(*files, "bucket/run");
    REQUIRE(listing);
    REQUIRE(listing->committed.size() == 1);
    CHECK(checkpoint::verify(*files, listing->committed[0], true));
    committer->remove("checkpoint_000000", {0, 0});
    committer.reset();
    CHECK(checkpoint::list_committed(*files, "bucket/run")->committed.empty());
    CHECK(warnings.empty());
  }
}

}  // namespace committer_test
