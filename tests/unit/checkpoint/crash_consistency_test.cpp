// A run's checkpoints on a disk that crashes or fails at every single operation.

#include <doctest/doctest.h>

#include <cerrno>
#include <functional>

#include "checkpoint/commit.h"
#include "storage/local_files.h"
#include "unit/sanitizers.h"
#include "unit/storage/memory_disk.h"

namespace crash_consistency_test {

using namespace trireme;
using namespace trireme::checkpoint;
using storage::LocalFiles;
using storage::MemoryDisk;

namespace {

const std::string kRun = "/results/run";

// Under a sanitizer, which is twenty times slower and checks for something else, a sample is enough.
constexpr std::size_t kStride = tests::kSanitized ? 31 : 1;

// What a reader may see: name, index and status of every checkpoint.
using Found = std::vector<std::string>;

std::string line(const std::string& name, const Manifest& manifest) {
  return fmt::format("{} #{} {}", name, manifest.index, to_string(manifest.status));
}

struct Step {
  std::string what;
  std::function<base::Result<void>(storage::Files&)> act;
  Found after;
};

Manifest manifest_of(std::int64_t index, std::vector<storage::FileRecord> files) {
  Manifest manifest;
  manifest.index = index;
  manifest.time = 1e9 + static_cast<double>(index);
  manifest.metrics = Dict{{"loss", 1.0 / static_cast<double>(index + 1)}};
  manifest.files = std::move(files);
  return manifest;
}

std::string source_of(int rank, std::int64_t index) { return fmt::format("/node/rank{}_{}", rank, index); }

class Script {
 public:
  Script() {
    checkpoint(0, default_name(0));
    checkpoint(1, default_name(1));
    add("retention removes #0",
        [](auto& files) {
          return remove(files, kRun, default_name(0), {0, 0});
        },
        {"checkpoint_000001 #1 COMMITTED"});
    add("#1 is validated", validate, {"checkpoint_000001 #1 VALIDATED"});
    checkpoint(2, default_name(2), storage::Take::kMove);
    checkpoint(3, "best");
    checkpoint(4, "best", storage::Take::kCopy, Origin{0, 3});
  }

  const std::vector<Step>& steps() const { return steps_; }
  Found before(std::size_t step) const { return step == 0 ? Found{} : steps_[step - 1].after; }

 private:
  // The contents of the ranks' messages.
  using Stored = std::map<int, std::vector<storage::FileRecord>>;

  static base::Result<void> put(storage::Files& files, int rank, std::int64_t index, const std::string& name,
                                storage::Take take, Stored& stored) {
    TRIREME_ASSIGN(stored[rank], upload(files, source_of(rank, index), kRun, name, take, Origin{0, index}));
    return {};
  }

  static base::Result<void> commit_both(storage::Files& files, std::int64_t index, const std::string& name,
                                        const Stored& stored) {
    TRIREME_ASSIGN(auto merged, merge(files, kRun, name, stored));
    TRIREME_TRY(commit(files, kRun, name, manifest_of(index, std::move(merged.files))));
    return {};
  }

  static base::Result<void> validate(storage::Files& files) {
    TRIREME_ASSIGN(auto listing, list_committed(files, kRun));
    REQUIRE(listing.committed.size() == 1);
    auto manifest = listing.committed[0].manifest;
    manifest.status = Status::kValidated;
    return update(files, kRun, default_name(1), manifest);
  }

  void add(std::string what, std::function<base::Result<void>(storage::Files&)> act, Found after) {
    steps_.push_back({std::move(what), std::move(act), std::move(after)});
  }

  // `removed`: is removed while the new one with the same name is written.
  void checkpoint(std::int64_t index, const std::string& name, storage::Take take = storage::Take::kCopy,
                  std::optional<Origin> removed = std::nullopt) {
    const Found before = steps_.empty() ? Found{} : steps_.back().after;
    auto stored = std::make_shared<Stored>();
    for (int rank : {0, 1}) {
      add(
          fmt::format("rank {} stores #{}", rank, index),
          [=](auto& files) { return put(files, rank, index, name, take, *stored); }, before);
    }
    Found after = before;
    std::erase_if(after, [&](const auto& each) { return each.starts_with(name + " "); });
    if (removed) {
      add(
          fmt::format("retention removes #{}", removed->index),
          [=](auto& files) { return remove(files, kRun, name, *removed); }, after);
    }
    after.push_back(line(name, manifest_of(index, {})));
    add(
        fmt::format("commit of #{}", index), [=](auto& files) { return commit_both(files, index, name, *stored); },
        after);
  }

  std::vector<Step> steps_;
};

// The ranks' files, and an empty run.
std::shared_ptr<MemoryDisk> fresh_disk() {
  static const std::shared_ptr<MemoryDisk> made = [] {
    auto disk = std::make_shared<MemoryDisk>();
    LocalFiles files(disk);
    for (int index = 0; index < 5; ++index) {
      for (int rank : {0, 1}) {
        const std::string source = source_of(rank, index);
        const std::string below = fmt::format("{}/rank{}", source, rank);
        REQUIRE(files.make_folder(below));
        // One file with the same name in every report, and one that is visible if it is left behind.
        REQUIRE(files.write_atomically(below + ".bin", fmt::format("state of rank {} at report {}", rank, index)));
        REQUIRE(files.write_atomically(fmt::format("{}/{}", below, index), index == 0 ? "" : "x"));
      }
    }
    REQUIRE(files.make_folder(kRun));
    return disk;
  }();
  return made->after_crash(0);  // everything is durable, so this is a copy
}

// What a reader sees, after verifying every byte.
Found read_all(storage::Files& files) {
  auto listing = list_committed(files, kRun);
  REQUIRE(listing);
  CHECK(listing->damaged == std::vector<std::string>{});
  Found found;
  for (const auto& each : listing->committed) {
    auto verified = verify(files, each, true);
    CHECK_MESSAGE(verified, each.path << ": " << (verified ? "" : verified.error().message()));
    CHECK(each.manifest.files.size() == 4);  // two per rank
    found.push_back(line(each.name, each.manifest));
  }
  return found;
}

std::vector<std::string> paths(storage::Files& files) {
  auto listed = files.list_files(kRun);
  REQUIRE(listed);
  std::vector<std::string> all;
  for (const auto& each : *listed) all.push_back(each.path);
  return all;
}

std::size_t temporaries(storage::Files& files) {
  const auto all = paths(files);
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& path) { return path.find("_tmp_") != std::string::npos; }));
}

// After remove_unfinished() the run has its checkpoints and nothing else.
void check_tidy(storage::Files& files) {
  auto listing = list_committed(files, kRun);
  REQUIRE(listing);
  std::vector<std::string> expected;
  for (const auto& each : listing->committed) {
    CHECK(each.path == kRun + "/" + each.name);
    expected.push_back(each.name + "/" + kManifestName);
    for (const auto& file : each.manifest.files) expected.push_back(each.name + "/" + file.path);
  }
  std::sort(expected.begin(), expected.end());
  CHECK(paths(files) == expected);
}

std::size_t steps_until_error(storage::Files& files, const Script& script, std::size_t first = 0) {
  for (std::size_t i = first; i < script.steps().size(); ++i) {
    if (!script.steps()[i].act(files)) return i;
  }
  return script.steps().size();
}

}  // namespace

TEST_CASE("the script works if nothing fails") {
  const Script script;
  auto disk = fresh_disk();
  LocalFiles files(disk);
  for (const auto& step : script.steps()) {
    CAPTURE(step.what);
    auto done = step.act(files);
    REQUIRE_MESSAGE(done, (done ? "" : done.error().message()));
    CHECK(read_all(files) == step.after);
  }
  check_tidy(files);
}

TEST_CASE("a crash at any operation loses no committed checkpoint and shows no partial one") {
  const Script script;
  std::size_t crashes = 0;
  for (std::size_t operation = 0;; operation += kStride) {
    auto disk = fresh_disk();
    disk->crash_at(operation);
    LocalFiles files(disk);
    const std::size_t step = steps_until_error(files, script);
    if (disk->operations() <= operation) break;  // the script has finished
    ++crashes;
    CAPTURE(disk->history()[operation]);
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      CAPTURE(seed);
      LocalFiles restarted(disk->after_crash(seed));
      const Found found = read_all(restarted);
      if (step == script.steps().size()) {
        CHECK(found == script.steps().back().after);  // the last operations only clean up
      } else {
        CAPTURE(script.steps()[step].what);
        CHECK((found == script.before(step) || found == script.steps()[step].after));
      }
      REQUIRE(remove_unfinished(restarted, kRun));
      CHECK(read_all(restarted) == found);
      check_tidy(restarted);
    }
  }
  CHECK(crashes > 300 / kStride);
}

TEST_CASE("a crash during recovery is recovered as well") {
  const Script script;
  for (std::size_t operation = 0;; operation += 13 * kStride) {
    auto disk = fresh_disk();
    disk->crash_at(operation);
    LocalFiles files(disk);
    steps_until_error(files, script);
    if (disk->operations() <= operation) break;
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      LocalFiles first(disk->after_crash(seed));
      const Found found = read_all(first);
      for (std::size_t second = 0;; ++second) {
        auto repaired = disk->after_crash(seed);
        repaired->crash_at(second);
        LocalFiles repairing(repaired);
        if (remove_unfinished(repairing, kRun)) break;
        CAPTURE(repaired->history()[second]);
        LocalFiles restarted(repaired->after_crash(seed + 1));
        CHECK(read_all(restarted) == found);
        REQUIRE(remove_unfinished(restarted, kRun));
        check_tidy(restarted);
      }
    }
  }
}

TEST_CASE("an error at any operation is reported, loses nothing, leaves no temporary file, and a retry succeeds") {
  const Script script;
  for (int error_number : {ENOSPC, EIO, EROFS}) {
    std::size_t errors = 0;
    for (std::size_t operation = 0;; operation += kStride) {
      auto disk = fresh_disk();
      disk->fail_at(operation, error_number);
      LocalFiles files(disk);
      const std::size_t step = steps_until_error(files, script);
      if (disk->operations() <= operation) break;
      CAPTURE(disk->history()[operation]);
      if (step < script.steps().size()) {
        ++errors;
        CAPTURE(script.steps()[step].what);
        const Found found = read_all(files);
        CHECK((found == script.before(step) || found == script.steps()[step].after));
        CHECK(temporaries(files) == 0);
        REQUIRE(steps_until_error(files, script, step) == script.steps().size());
      }
      CHECK(read_all(files) == script.steps().back().after);
      REQUIRE(remove_unfinished(files, kRun));
      check_tidy(files);
    }
    CHECK(errors > 300 / kStride);
  }
}

TEST_CASE("storage that is temporarily unavailable is used again when it is back") {
  const Script script;
  for (std::size_t operation = 0;; operation += 3 * kStride) {
    auto disk = fresh_disk();
    disk->fail_at(operation, EIO, 25);
    LocalFiles files(disk);
    std::size_t step = steps_until_error(files, script);
    if (disk->operations() <= operation) break;
    CAPTURE(disk->history()[operation]);
    for (int tries = 0; step < script.steps().size(); ++tries) {
      REQUIRE(tries < 30);
      step = steps_until_error(files, script, step);
    }
    while (disk->operations() < operation + 25) (void)files.exists(kRun);
    CHECK(read_all(files) == script.steps().back().after);
    REQUIRE(remove_unfinished(files, kRun));
    check_tidy(files);
  }
}

}  // namespace crash_consistency_test
