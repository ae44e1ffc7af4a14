#include "worker/checkpoint_writer.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>

#include "base/host.h"
#include "base/json.h"
#include "checkpoint/commit.h"
#include "checkpoint/scratch_folder.h"
#include "checkpoint/state_file.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "unit/engine/testing.h"
#include "unit/environment.h"
#include "unit/folder_file_system.h"
#include "unit/temp_dir.h"

namespace checkpoint_writer_test {

using namespace trireme;
using namespace trireme::worker;
using engine::testing::eventually;
using tests::append_file;
using tests::TempDir;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

// The results that the writer reported for each part.
class DoneBook {
 public:
  CheckpointWriter::Done handler() {
    return [this](std::int64_t index, base::Result<CheckpointWriter::Stored> stored) {
      const std::lock_guard lock(mutex_);
      order_.push_back(index);
      if (stored) stored_[index] = *std::move(stored);
      else failures_[index] = stored.error().message();
    };
  }
  std::vector<std::int64_t> order() {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  CheckpointWriter::Stored stored(std::int64_t index) {
    const std::lock_guard lock(mutex_);
    REQUIRE_MESSAGE(stored_.contains(index), failures_[index]);
    return stored_[index];
  }
  std::string failure(std::int64_t index) {
    const std::lock_guard lock(mutex_);
    REQUIRE(failures_.contains(index));
    return failures_[index];
  }
  Names files(std::int64_t index) {
    Names names;
    for (const auto& file : stored(index).files) names.push_back(file.path);
    return names;
  }

 private:
  std::mutex mutex_;
  std::vector<std::int64_t> order_;
  std::map<std::int64_t, CheckpointWriter::Stored> stored_;
  std::map<std::int64_t, std::string> failures_;
};

struct Desk {
  TempDir dir;
  wire::Start start;
  DoneBook done;

  Desk() {
    start.run_id = "this run";
    start.storage_path = dir / "run";
    append_file(start.storage_path + "/" + checkpoint::kMarkerName, start.run_id);
  }
  std::unique_ptr<CheckpointWriter> writer() {
    return std::make_unique<CheckpointWriter>(start, std::make_shared<storage::LocalFiles>(), done.handler());
  }
  std::string folder(const std::string& name, const std::string& text = "weights") {
    append_file(dir / name + "/a", text);
    append_file(dir / name + "/deep/b", text);
    return dir / name;
  }
  std::string stored_path(const std::string& name) const { return start.storage_path + "/" + name; }
};

std::vector<std::int64_t> numbers_in(const std::string& folder) {
  auto state = checkpoint::load_state(folder);
  REQUIRE_MESSAGE(state, (state ? "" : state.error().message()));
  const auto values = state->at("w").as_tensor().values<std::int64_t>();
  return {values.begin(), values.end()};
}

CheckpointSource state_of(const Tensor& tensor, CheckpointUploadMode mode) {
  CheckpointSource made;
  made.state = Dict{{"w", tensor}, {"epoch", 3}};
  made.mode = mode;
  return made;
}

// An upload that blocks until the test opens the gate.
struct Gate {
  std::promise<void> promise;
  std::shared_future<void> open = promise.get_future().share();  // shared by every copy of the source

  CheckpointSource source(const Desk& desk) const {
    CheckpointSource made;
    made.mode = CheckpointUploadMode::kAsync;
    made.upload = [open = open, path = desk.start.storage_path](const std::string& name) -> base::Result<std::string> {
      open.wait();
      append_file(path + "/" + name + "/by_hand", "x");
      return path + "/" + name;
    };
    return made;
  }
};

}  // namespace

TEST_CASE("SYNC: the files are durable when store() returns") {
  Desk desk;
  auto writer = desk.writer();
  CheckpointSource source{.folder = desk.folder("mine")};
  SUBCASE("and the folder is still there") {}
  SUBCASE("and the folder is deleted if requested") { source.delete_folder = true; }
  REQUIRE(writer->store(4, "best", source));
  CHECK(desk.done.order() == std::vector<std::int64_t>{4});
  CHECK(desk.done.files(4) == Names{"a", "deep/b"});
  CHECK(desk.done.stored(4).memory.empty());
  for (const auto& file : desk.done.stored(4).files) {
    CHECK(file.size == 7);
    CHECK(file.xxh3.size() == 16);
    CHECK(storage::read_file(desk.stored_path("best") + "/" + file.path).value() == "weights");
  }
  CHECK(fs::exists(source.folder + "/a") == !source.delete_folder);
  CHECK(fs::exists(source.folder) == !source.delete_folder);
}

TEST_CASE("a state is at the top for rank 0, and in a separate folder for other ranks") {
  for (int rank : {0, 3}) {
    CAPTURE(rank);
    Desk desk;
    desk.start.world_rank = rank;
    auto writer = desk.writer();
    const Tensor tensor = Tensor::of<std::int64_t>({1, 2, 3});
    REQUIRE(writer->store(0, "checkpoint_000000", state_of(tensor, CheckpointUploadMode::kSync)));
    const std::string inside = rank == 0 ? "" : "rank_3/";
    CHECK(desk.done.files(0) == Names{inside + "state.safetensors", inside + "state.json"});
    const std::string folder = desk.stored_path("checkpoint_000000") + (rank == 0 ? "" : "/rank_3");
    CHECK(numbers_in(folder) == std::vector<std::int64_t>{1, 2, 3});
  }
}

TEST_CASE("ASYNC: stores the state as it was, even if the training changes it afterwards") {
  Desk desk;
  auto writer = desk.writer();
  Gate gate;
  // The thread is busy with this one while the state changes.
  REQUIRE(writer->store(0, "first", gate.source(desk)));
  Tensor tensor = Tensor::of<std::int64_t>({1, 2, 3});
  REQUIRE(writer->store(1, "second", state_of(tensor, CheckpointUploadMode::kAsync)));
  tensor.values<std::int64_t>()[0] = 99;
  CHECK(desk.done.order().empty());
  gate.promise.set_value();
  writer->wait_idle();
  CHECK(desk.done.order() == std::vector<std::int64_t>{0, 1});
  CHECK(desk.done.files(0) == Names{"by_hand"});
  CHECK(numbers_in(desk.stored_path("second")) == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("ASYNC: a folder is read when its turn comes") {
  Desk desk;
  auto writer = desk.writer();
  CheckpointSource source{.folder = desk.folder("mine"), .mode = CheckpointUploadMode::kAsync, .delete_folder = true};
  REQUIRE(writer->store(0, "checkpoint_000000", source));
  writer->wait_idle();
  CHECK(desk.done.files(0) == Names{"a", "deep/b"});
  CHECK_FALSE(fs::exists(source.folder));
}

TEST_CASE("the number of parts in flight is bounded") {
  Desk desk;
  desk.start.checkpoint_config.max_uploads_in_flight = 2;
  auto writer = desk.writer();
  Gate gate;
  REQUIRE(writer->store(0, "c0", gate.source(desk)));
  REQUIRE(writer->store(1, "c1", gate.source(desk)));
  std::atomic<bool> opened = false;
  std::atomic<bool> returned = false;
  std::atomic<bool> waited = false;
  std::jthread third([&] {
    const bool stored = writer->store(2, "c2", gate.source(desk)).ok();
    waited = stored && opened;
    returned = true;
  });
  // SYNC does not wait for the queue.
  REQUIRE(writer->store(3, "c3", {.folder = desk.folder("mine")}));
  CHECK(desk.done.order() == std::vector<std::int64_t>{3});
  CHECK_FALSE(returned);
  opened = true;
  gate.promise.set_value();
  third.join();
  CHECK(waited);
  writer->wait_idle();
  CHECK(desk.done.order() == std::vector<std::int64_t>{3, 0, 1, 2});
}

TEST_CASE("a callback reports when no part is in flight") {
  Desk desk;
  auto writer = desk.writer();
  std::atomic<int> told = 0;
  writer->when_idle([&] { ++told; });
  CHECK(told == 1);
  writer->wait_idle();
  Gate gate;
  REQUIRE(writer->store(0, "c0", gate.source(desk)));
  std::atomic<bool> done_before = false;
  writer->when_idle([&] {
    done_before = desk.done.order().size() == 1;
    ++told;
  });
  CHECK(told == 1);
  gate.promise.set_value();
  CHECK(eventually([&] { return told == 2; }));
  CHECK(done_before);
  // Called only once.
  REQUIRE(writer->store(1, "c1", {.folder = desk.folder("mine")}));
  CHECK(told == 2);
}

TEST_CASE("parts in flight are stored before the writer is destroyed") {
  Desk desk;
  auto writer = desk.writer();
  Gate gate;
  REQUIRE(writer->store(0, "c0", gate.source(desk)));
  REQUIRE(writer->store(1, "c1", state_of(Tensor::of<std::int64_t>({5}), CheckpointUploadMode::kAsync)));
  std::jthread opener([&] { gate.promise.set_value(); });
  writer.reset();
  CHECK(desk.done.order() == std::vector<std::int64_t>{0, 1});
  CHECK(numbers_in(desk.stored_path("c1")) == std::vector<std::int64_t>{5});
}

TEST_CASE("a failure is reported once: for SYNC also to the caller, for ASYNC only to the callback") {
  Desk desk;
  auto writer = desk.writer();
  const std::string gone = desk.dir / "gone";
  auto sync = writer->store(0, "c0", {.folder = gone});
  REQUIRE_FALSE(sync);
  CHECK(desk.done.failure(0) == sync.error().message());
  CHECK(sync.error().message().find(gone) != std::string::npos);
  REQUIRE(writer->store(1, "c1", {.folder = gone, .mode = CheckpointUploadMode::kAsync}));
  writer->wait_idle();
  CHECK(desk.done.failure(1) == sync.error().message());
  CHECK(desk.done.order() == std::vector<std::int64_t>{0, 1});
  // The next one works.
  REQUIRE(writer->store(2, "c2", {.folder = desk.folder("mine")}));
  CHECK(desk.done.files(2).size() == 2);
}

TEST_CASE("a state that cannot be stored is refused before anything is queued") {
  Desk desk;
  auto writer = desk.writer();
  CheckpointSource source;
  // Too deeply nested for any reader.
  Value nested;
  for (int i = 0; i <= base::kMaxDepth; ++i) nested = List{std::move(nested)};
  source.state = Dict{{"deep", std::move(nested)}};
  source.mode = CheckpointUploadMode::kAsync;
  auto refused = writer->store(0, "c0", std::move(source));
  REQUIRE_FALSE(refused);
  CHECK(desk.done.failure(0) == refused.error().message());
  writer->wait_idle();
  CHECK(desk.done.order().size() == 1);
}

TEST_CASE("a worker that does not see the run's storage reports an error") {
  Desk desk;
  const std::string marker = desk.start.storage_path + "/" + checkpoint::kMarkerName;
  std::string state;
  SUBCASE("nothing there") {
    fs::remove(marker);
    state = "does not exist";
  }
  SUBCASE("that of another start") {
    fs::remove(marker);
    append_file(marker, "another start");
    state = "belongs to another start of the run";
  }
  desk.start.world_rank = 2;
  auto writer = desk.writer();
  auto refused = writer->store(0, "c0", {.folder = desk.folder("mine")});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message() ==
        fmt::format("rank 2 on {} does not see the run's storage {}: {} {} there; storage_path must be a folder that "
                    "all nodes share, or remote storage",
                    base::host_name(), desk.start.storage_path, checkpoint::kMarkerName, state));
  CHECK(desk.done.failure(0) == refused.error().message());
  CHECK_FALSE(fs::exists(desk.stored_path("c0")));
  // It may appear later, such as a late mount.
  fs::remove(marker);
  append_file(marker, desk.start.run_id);
  CHECK(writer->store(1, "c1", {.folder = desk.folder("mine")}));
}

TEST_CASE("names of checkpoints") {
  Desk desk;
  auto writer = desk.writer();
  const CheckpointSource folder{.folder = desk.folder("mine")};
  CHECK(writer->name_for(folder, std::nullopt).value() == std::nullopt);
  CHECK(writer->name_for(folder, "best").value() == "best");
  for (const char* name : {"", "..", "../up", "a/b", "/abs", ".hidden", "logs", "run.json"}) {
    CAPTURE(name);
    CHECK_FALSE(writer->name_for(folder, name));
  }
  auto absent = writer->name_for({.folder = desk.dir / "absent"}, std::nullopt);
  CHECK(absent.error().message() == "the checkpoint folder " + (desk.dir / "absent") + " does not exist");
  // A state has no folder to look for.
  CHECK(writer->name_for(state_of(Tensor::scalar<double>(1), CheckpointUploadMode::kAsync), std::nullopt));
}

TEST_CASE("NO_UPLOAD: a folder in the run folder is used as it is") {
  Desk desk;
  auto writer = desk.writer();
  append_file(desk.stored_path("mine/a"), "weights");
  CheckpointSource source{
      .folder = desk.stored_path("mine"), .mode = CheckpointUploadMode::kNoUpload, .delete_folder = true};
  for (const char* written : {"mine", "mine/", "./mine", "other/../mine"}) {
    CAPTURE(written);
    CheckpointSource same = source;
    same.folder = desk.stored_path(written);
    CHECK(writer->name_for(same, std::nullopt).value() == "mine");
  }
  // The folder is the checkpoint, so it is not deleted.
  REQUIRE(writer->store(0, "mine", source));
  CHECK(desk.done.files(0) == Names{"a"});
  CHECK(fs::exists(desk.stored_path("mine/a")));

  for (const std::string& outside : {desk.folder("outside"), desk.start.storage_path, desk.stored_path("a/b"),
                                     desk.stored_path(".hidden"), desk.stored_path("../outside"), std::string()}) {
    CAPTURE(outside);
    source.folder = outside;
    auto refused = writer->name_for(source, std::nullopt);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("NO_UPLOAD: the checkpoint " + outside +
                                         " is not a folder in the run folder") == 0);
  }
  // The run's own names are refused too.
  source.folder = desk.stored_path("logs");
  CHECK_FALSE(writer->name_for(source, std::nullopt));
}

TEST_CASE("a folder that was filled in place is kept even if its deletion is requested") {
  Desk desk;
  auto writer = desk.writer();
  append_file(desk.stored_path("c0/a"), "weights");
  REQUIRE(writer->store(0, "c0", {.folder = desk.stored_path("c0"), .delete_folder = true}));
  CHECK(desk.done.files(0) == Names{"a"});
  CHECK(fs::exists(desk.stored_path("c0/a")));
}

TEST_CASE("the user's upload function") {
  Desk desk;
  auto writer = desk.writer();
  CheckpointSource source{.folder = desk.folder("mine")};
  std::string told;
  SUBCASE("receives the name") {
    source.delete_folder = true;
    source.upload = [&](const std::string& name) -> base::Result<std::string> {
      told = name;
      append_file(desk.stored_path(name) + "/by_hand", "x");
      return desk.stored_path(name) + "/";
    };
    auto stored = writer->store(0, "c0", source);
    REQUIRE_MESSAGE(stored, (stored ? "" : stored.error().message()));
    CHECK(told == "c0");
    CHECK(desk.done.files(0) == Names{"by_hand"});
    CHECK_FALSE(fs::exists(source.folder));
  }
  SUBCASE("finds no folder there, and may create its own") {
    source.folder = desk.dir / "made_later";
    CHECK(writer->name_for({.folder = source.folder,
                            .upload = [](const std::string&) -> base::Result<std::string> { return std::string(); }},
                           std::nullopt));
    source.upload = [&](const std::string& name) -> base::Result<std::string> {
      told = fs::exists(desk.stored_path(name)) ? "is there" : "is not there";
      append_file(source.folder + "/file", "x");
      fs::copy(source.folder, desk.stored_path(name));
      return desk.stored_path(name);
    };
    auto stored = writer->store(0, "c0", source);
    REQUIRE_MESSAGE(stored, (stored ? "" : stored.error().message()));
    CHECK(told == "is not there");
    CHECK(desk.done.files(0) == Names{"file"});
  }
  SUBCASE("must store in the run's storage") {
    source.upload = [](const std::string&) -> base::Result<std::string> { return std::string("/elsewhere"); };
    CHECK(writer->store(0, "c0", source).error().message() == "checkpoint_upload_fn must store the checkpoint in " +
                                                                  desk.stored_path("c0") +
                                                                  ", but it returned /elsewhere");
  }
  SUBCASE("may fail") {
    source.upload = [](const std::string&) -> base::Result<std::string> { return base::error("no bucket"); };
    CHECK(writer->store(0, "c0", source).error().message() == "no bucket");
    CHECK(desk.done.failure(0) == "no bucket");
    CHECK(fs::exists(source.folder));
  }
  SUBCASE("must store something") {
    source.upload = [&](const std::string& name) -> base::Result<std::string> { return desk.stored_path(name); };
    CHECK(writer->store(0, "c0", source).error().message() ==
          "checkpoint_upload_fn returned " + desk.stored_path("c0") + " but stored nothing in it");
  }
}

TEST_CASE("memory tier: snapshots are kept until a newer one is committed") {
  Desk desk;
  desk.start.checkpoint_config.keep_in_memory = true;
  desk.start.checkpoint_config.max_uploads_in_flight = 1;
  auto writer = desk.writer();
  auto store = [&](std::int64_t index, CheckpointUploadMode mode) {
    REQUIRE(writer->store(index, checkpoint::default_name(index), state_of(Tensor::of<std::int64_t>({index}), mode)));
    writer->wait_idle();
    return desk.done.stored(index).memory;
  };
  auto content = [](const Dict& memory, const char* name) {
    return storage::read_file(fmt::format("/proc/self/fd/{}", memory.at(name).as_int())).value();
  };
  const Dict first = store(0, CheckpointUploadMode::kSync);
  const Dict second = store(1, CheckpointUploadMode::kAsync);
  for (const char* name : {"state.json", "state.safetensors"}) {
    CHECK(content(first, name) == storage::read_file(desk.stored_path("checkpoint_000000/") + name).value());
    CHECK(content(second, name) == storage::read_file(desk.stored_path("checkpoint_000001/") + name).value());
  }
  // Nothing is committed: memory does not fill with waiting snapshots.
  CHECK(store(2, CheckpointUploadMode::kAsync).empty());
  writer->committed(1);
  const Dict last = store(3, CheckpointUploadMode::kAsync);
  CHECK(last.size() == 2);
  // The committed one is not overwritten by later ones.
  CHECK(content(second, "state.safetensors") ==
        storage::read_file(desk.stored_path("checkpoint_000001/state.safetensors")).value());
}

TEST_CASE("without the memory tier no files are offered") {
  Desk desk;
  auto writer = desk.writer();
  REQUIRE(writer->store(0, "c0", state_of(Tensor::of<std::int64_t>({1}), CheckpointUploadMode::kAsync)));
  writer->wait_idle();
  CHECK(desk.done.stored(0).memory.empty());
}

TEST_CASE("remote storage") {
  Desk desk;
  TempDir temporary;
  const tests::Environment environment("TMPDIR", temporary.path());
  auto file_system = std::make_shared<tests::FolderFileSystem>(desk.dir / "far");
  auto files = std::make_shared<storage::RemoteFiles>(file_system, "far");
  desk.start.world_rank = 1;
  desk.start.storage_path = "bucket/run";
  file_system->write(std::string("bucket/run/") + checkpoint::kMarkerName, desk.start.run_id);
  const std::string there = desk.dir / "far/bucket/run/";
  CheckpointWriter writer(desk.start, files, desk.done.handler());

  REQUIRE(writer.store(0, "c0", {.folder = desk.folder("mine"), .delete_folder = true}));
  CHECK(desk.done.files(0) == Names{"a", "deep/b"});
  CHECK(storage::read_file(there + "c0/deep/b").value() == "weights");
  CHECK_FALSE(fs::exists(desk.dir / "mine"));

  for (CheckpointUploadMode mode : {CheckpointUploadMode::kSync, CheckpointUploadMode::kAsync}) {
    const std::int64_t index = mode == CheckpointUploadMode::kSync ? 1 : 2;
    const std::string name = "c" + std::to_string(index);
    REQUIRE(writer.store(index, name, state_of(Tensor::of<std::int64_t>({index}), mode)));
    writer.wait_idle();
    CHECK(desk.done.files(index) == Names{"rank_1/state.json", "rank_1/state.safetensors"});
    CHECK(numbers_in(there + name + "/rank_1") == std::vector<std::int64_t>{index});
  }
  // The state was stored through a local temporary folder, which is empty again.
  for (const auto& left : fs::recursive_directory_iterator(temporary.path())) CHECK(left.is_directory());
  CHECK(fs::is_empty(checkpoint::temporary_folder("uploads")));

  writer.committed(2);
  CheckpointSource in_place{.folder = "bucket/run/c0", .mode = CheckpointUploadMode::kNoUpload};
  CHECK(writer.name_for(in_place, std::nullopt).value() == "c0");
  REQUIRE(writer.store(3, "c0", in_place));
  CHECK(desk.done.files(3) == Names{"a", "deep/b"});
  auto refused = writer.name_for({.folder = "other/c0", .mode = CheckpointUploadMode::kNoUpload}, std::nullopt);
  CHECK(refused.error().message().find("is not a folder in the run folder far://bucket/run") != std::string::npos);
}

TEST_CASE("a reused name waits until the previous checkpoint with that name is committed") {
  Desk desk;
  std::atomic<bool> idle = false;  // declared before the writer, whose thread sets it
  auto writer = desk.writer();
  REQUIRE(writer->store(0, "last", state_of(Tensor::of<std::int64_t>({0}), CheckpointUploadMode::kAsync)));
  REQUIRE(writer->store(1, "last", state_of(Tensor::of<std::int64_t>({1}), CheckpointUploadMode::kAsync)));
  writer->when_idle([&] { idle = true; });
  CHECK_FALSE(idle);
  writer->committed(0);
  writer->wait_idle();
  CHECK(numbers_in(desk.stored_path("last")) == std::vector<std::int64_t>{1});
}

TEST_CASE("if folders cannot be moved, the newest checkpoint is replaced only after a newer one is committed") {
  Desk desk;
  auto file_system = std::make_shared<tests::FolderFileSystem>(desk.dir / "store");
  auto files = std::make_shared<storage::RemoteFiles>(file_system, "far");
  desk.start.storage_path = "bucket/run";
  file_system->write(std::string("bucket/run/") + checkpoint::kMarkerName, desk.start.run_id);
  // From an earlier attempt: the checkpoint to resume from.
  const std::string manifest = std::string("bucket/run/slot0/") + checkpoint::kManifestName;
  file_system->write(manifest, "{}");
  std::atomic<bool> idle = false;
  CheckpointWriter writer(desk.start, files, desk.done.handler());
  REQUIRE(writer.store(0, "slot1", state_of(Tensor::of<std::int64_t>({0}), CheckpointUploadMode::kAsync)));
  writer.wait_idle();
  REQUIRE(writer.store(1, "slot0", state_of(Tensor::of<std::int64_t>({1}), CheckpointUploadMode::kAsync)));
  writer.when_idle([&] { idle = true; });
  CHECK_FALSE(idle);
  CHECK(file_system->exists(manifest));
  writer.committed(0);
  writer.wait_idle();
  CHECK_FALSE(desk.done.files(1).empty());
}

TEST_CASE("a checkpoint that contains the run folder is refused, also with remote storage") {
  Desk desk;
  auto file_system = std::make_shared<tests::FolderFileSystem>(desk.dir / "mounted");
  auto files = std::make_shared<storage::RemoteFiles>(file_system, "far");
  desk.start.storage_path = "bucket/run";
  desk.start.path = desk.dir / "state/mirror/run";
  append_file(desk.start.path + "/events.jsonl", "{}");
  file_system->write(std::string("bucket/run/") + checkpoint::kMarkerName, desk.start.run_id);
  CheckpointWriter writer(desk.start, files, desk.done.handler());
  const std::string mine = desk.folder("mine");

  std::string source = mine;
  SUBCASE("the folder on this machine") { source = desk.dir / "state"; }
  SUBCASE("through a link") { fs::create_directory_symlink(desk.dir / "state", mine + "/link"); }
  SUBCASE("it is that folder") { source = desk.start.path; }
  SUBCASE("the storage, which is mounted here") { source = desk.dir / "mounted/bucket"; }
  auto stored = writer.store(0, "c0", {.folder = source, .delete_folder = true});
  REQUIRE_FALSE(stored);
  CHECK(stored.error().message().find("contains the run folder") != std::string::npos);
  CHECK(fs::exists(desk.start.path + "/events.jsonl"));
  CHECK_FALSE(file_system->exists("bucket/run/c0"));
  // The folder of another run is an ordinary folder.
  append_file(desk.dir / "other/" + checkpoint::kMarkerName, "another run");
  append_file(desk.dir / "other/weights", "w");
  CHECK(writer.store(1, "c1", {.folder = desk.dir / "other"}));
}

}  // namespace checkpoint_writer_test
