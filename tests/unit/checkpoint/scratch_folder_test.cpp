#include "checkpoint/scratch_folder.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "unit/temp_dir.h"

namespace scratch_folder_test {

using namespace trireme;
using checkpoint::ScratchFolder;
using tests::append_file;
using tests::TempDir;
namespace fs = std::filesystem;

namespace {

// Like a worker that is killed during an upload.
void leave_behind(const std::string& parent) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto folder = ScratchFolder::make(parent);
    if (folder) append_file(folder->path() + "/state", "many bytes");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
}

std::ptrdiff_t count(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

}  // namespace

TEST_CASE("a scratch folder is removed with its owner") {
  TempDir dir;
  std::string path;
  {
    auto folder = ScratchFolder::make(dir / "mine/uploads");
    REQUIRE(folder.ok());
    path = folder->path();
    append_file(path + "/deep/state", "x");
  }
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("leftovers of killed processes are removed, folders in use stay") {
  TempDir dir;
  const std::string parent = dir / "mine/uploads";
  auto used = ScratchFolder::make(parent);
  REQUIRE(used.ok());
  leave_behind(parent);
  CHECK(count(parent) == 2);
  SUBCASE("when the next folder is created") {
    auto next = ScratchFolder::make(parent);
    REQUIRE(next.ok());
    CHECK(count(parent) == 2);
    CHECK(fs::exists(next->path()));
  }
  SUBCASE("at the end of a run") {
    ScratchFolder::remove_abandoned(parent);
    CHECK(count(parent) == 1);
  }
  CHECK(fs::exists(used->path()));
}

TEST_CASE("a parent that is writable by other users is rejected") {
  TempDir dir;
  const std::string parent = dir / "mine";
  fs::create_directory(parent);
  REQUIRE(::chmod(parent.c_str(), 0777) == 0);
  auto folder = ScratchFolder::make(parent + "/uploads");
  REQUIRE_FALSE(folder.ok());
  CHECK(folder.error().message().find("is writable by other users") != std::string::npos);
}

TEST_CASE("removing abandoned folders without any folder") {
  TempDir dir;
  ScratchFolder::remove_abandoned(dir / "none/uploads");
  CHECK_FALSE(fs::exists(dir / "none"));
}

}  // namespace scratch_folder_test
