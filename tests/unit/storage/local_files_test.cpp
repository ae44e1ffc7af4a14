#include "storage/local_files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "unit/temp_dir.h"

using namespace trireme;
using namespace trireme::storage;
using tests::append_file;
using tests::TempDir;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> names(const std::string& folder) {
  auto files = list_files(folder);
  REQUIRE(files);
  std::vector<std::string> all;
  for (const auto& file : *files) all.push_back(file.path);
  return all;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("files are written whole and read back") {
  TempDir dir;
  const std::string path = dir / "file";
  const std::string large(3 << 20, 'x');
  for (const std::string& content : {std::string("first"), std::string(), std::string("\0\xff", 2), large}) {
    REQUIRE(write_file_atomically(path, content));
    auto back = read_file(path);
    REQUIRE(back);
    CHECK((*back == content));
  }
  CHECK(names(dir.path()) == Names{"file"});  // no temporary file stays
}

TEST_CASE("a reader sees the old content or the new one, whoever writes") {
  TempDir dir;
  const std::string path = dir / "file";
  const std::string a(1 << 16, 'a');
  const std::string b(1 << 16, 'b');
  REQUIRE(write_file_atomically(path, a));
  std::atomic<bool> done = false;
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> writers;
    for (const auto& content : {a, b, a, b}) {
      writers.emplace_back([&failures, &path, content] {
        for (int i = 0; i < 20; ++i) failures += write_file_atomically(path, content) ? 0 : 1;
      });
    }
    std::jthread reader([&] {
      while (!done) {
        auto seen = read_file(path);
        failures += seen && (*seen == a || *seen == b) ? 0 : 1;
      }
    });
    writers.clear();
    done = true;
  }
  CHECK(failures == 0);
  CHECK(names(dir.path()) == Names{"file"});
}

TEST_CASE("errors name the file and the reason") {
  TempDir dir;
  append_file(dir / "file", "x");
  auto absent = read_file(dir / "absent");
  REQUIRE_FALSE(absent);
  CHECK(absent.error().message().find("absent: No such file") != std::string::npos);
  CHECK(write_file_atomically(dir / "absent/file", "").error().message().find("absent/file") != std::string::npos);
  CHECK_FALSE(make_folder(dir / "file"));
  CHECK_FALSE(make_folder(dir / "file/below"));
  CHECK_FALSE(list_files(dir / "absent"));
  CHECK_FALSE(copy_folder(dir / "absent", dir / "copy"));
  CHECK_FALSE(sync_folder(dir / "absent"));
  CHECK_FALSE(sync_folder(dir / "file"));
  // A folder in the way: the temporary file does not stay.
  REQUIRE(make_folder(dir / "folder/full"));
  CHECK_FALSE(write_file_atomically(dir / "folder", ""));
  CHECK(names(dir.path()) == Names{"file"});
}

TEST_CASE("folders are made with those above, and again") {
  TempDir dir;
  REQUIRE(make_folder(dir / "a/b/c"));
  REQUIRE(make_folder(dir / "a/b/c"));
  CHECK(fs::is_directory(dir / "a/b/c"));
  REQUIRE(remove_folder(dir / "a"));
  REQUIRE(remove_folder(dir / "a"));
  CHECK_FALSE(fs::exists(dir / "a"));
}

TEST_CASE("files are listed by path, folders are not") {
  TempDir dir;
  append_file(dir / "b/deep/er.txt", "123");
  append_file(dir / "a", "");
  append_file(dir / "b.txt", "1");
  append_file(dir / ".hidden", "1");
  REQUIRE(make_folder(dir / "empty"));
  CHECK(names(dir.path()) == Names{".hidden", "a", "b.txt", "b/deep/er.txt"});
  CHECK((*list_files(dir.path()))[3].size == 3);
}

TEST_CASE("a folder is copied into another, which keeps what it has") {
  TempDir dir;
  append_file(dir / "from/model/weights.bin", std::string(2 << 20, 'w'));
  append_file(dir / "from/empty", "");
  append_file(dir / "from/both", "new");
  append_file(dir / "to/both", "old and longer");
  append_file(dir / "to/own", "stays");
  REQUIRE(copy_folder(dir / "from", dir / "to"));
  CHECK(names(dir / "to") == Names{"both", "empty", "model/weights.bin", "own"});
  CHECK(*read_file(dir / "to/both") == "new");
  CHECK((*read_file(dir / "to/model/weights.bin") == std::string(2 << 20, 'w')));
}

TEST_CASE("a link to a file elsewhere is copied as that file, into the target and nowhere else") {
  TempDir dir;
  append_file(dir / "elsewhere/blob", "content");
  append_file(dir / "run/from/plain", "p");
  fs::create_symlink(dir / "elsewhere/blob", dir / "run/from/link");
  fs::create_symlink(dir / "nowhere", dir / "run/from/dangling");
  CHECK(names(dir / "run/from") == Names{"link", "plain"});
  REQUIRE(copy_folder(dir / "run/from", dir / "deep/er/to"));
  CHECK(names(dir / "deep/er/to") == Names{"link", "plain"});
  CHECK_FALSE(fs::is_symlink(dir / "deep/er/to/link"));
  CHECK(*read_file(dir / "deep/er/to/link") == "content");
  CHECK(names(dir / "deep") == Names{"er/to/link", "er/to/plain"});
}
