// The same guarantees as in crash_consistency_test.cpp, on a real disk and with a process that is really killed.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <random>

#include "base/fd.h"
#include "checkpoint/commit.h"
#include "storage/local_files.h"
#include "unit/temp_dir.h"

namespace kill_test {

using namespace trireme;
using namespace trireme::checkpoint;
using storage::LocalFiles;
using tests::TempDir;

namespace {

base::Result<void> store(LocalFiles& files, const std::string& source, const std::string& run, const std::string& name,
                         Origin origin) {
  TRIREME_ASSIGN(auto records, upload(files, source, run, name, storage::Take::kCopy, origin));
  Manifest manifest;
  manifest.index = origin.index;
  manifest.attempt = origin.attempt;
  manifest.files = std::move(records);
  TRIREME_TRY(commit(files, run, name, std::move(manifest)));
  return {};
}

// It may be from an earlier attempt.
base::Result<void> remove_by_name(LocalFiles& files, const std::string& run, const std::string& name) {
  TRIREME_ASSIGN(const auto listing, list_committed(files, run));
  for (const auto& each : listing.committed) {
    if (each.name != name) continue;
    TRIREME_TRY(checkpoint::remove(files, run, name, {each.manifest.attempt, each.manifest.index}));
  }
  return {};
}

void give_up(const base::Result<void>& result, int code) {
  if (result) return;
  std::fprintf(stderr, "the child ends: %s\n", result.error().message().c_str());
  ::_exit(code);
}

// Commits checkpoints until it is killed and reports each commit.
[[noreturn]] void commit_forever(const std::string& source, const std::string& run, int attempt, std::int64_t index,
                                 int said) {
  LocalFiles files;
  give_up(remove_unfinished(files, run), 2);
  for (;; ++index) {
    give_up(store(files, source, run, default_name(index), {attempt, index}), 3);
    give_up(store(files, source, run, "last", {attempt, index}), 4);
    if (::write(said, &index, sizeof index) != sizeof index) ::_exit(5);
    if (index >= 2) give_up(remove_by_name(files, run, default_name(index - 2)), 6);
  }
}

}  // namespace

TEST_CASE("a process killed at any time loses no committed checkpoint") {
  TempDir dir;
  tests::append_file(dir / "source/large", std::string(50000, 'x'));
  tests::append_file(dir / "source/deep/small", "x");
  const std::string run = dir / "run";
  REQUIRE(storage::make_folder(run));
  std::mt19937_64 random(4);
  std::int64_t newest = -1;
  LocalFiles files;
  for (int round = 0; round < 50; ++round) {
    CAPTURE(round);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    base::Fd heard(ends[0]);
    base::Fd said(ends[1]);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) commit_forever(dir / "source", run, round, newest + 1, said.get());
    said.reset();
    const std::int64_t before = newest;
    const auto commits = static_cast<std::int64_t>(random() % 3);
    while (newest < before + commits) REQUIRE(::read(heard.get(), &newest, sizeof newest) == sizeof newest);
    ::usleep(static_cast<useconds_t>(random() % 8000));  // during the next one
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    while (::read(heard.get(), &newest, sizeof newest) == sizeof newest) continue;

    auto listing = list_committed(files, run);
    REQUIRE(listing);
    CHECK(listing->damaged.empty());
    std::map<std::string, std::int64_t> found;
    for (const auto& each : listing->committed) {
      auto verified = verify(files, each, true);
      CHECK_MESSAGE(verified, (verified ? "" : verified.error().message()));
      CHECK(each.manifest.files.size() == 2);
      found[each.name] = each.manifest.index;
    }
    if (newest >= 0) {
      CHECK(found.contains(default_name(newest)));
      REQUIRE(found.contains("last"));
      CHECK(found["last"] >= newest);
    }
    for (const auto& [name, index] : found) CHECK(index <= newest + 1);
  }
  CHECK(newest > 10);
}

}  // namespace kill_test
