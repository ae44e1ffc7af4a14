#include "unit/storage/memory_disk.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <set>

namespace memory_disk_test {

using namespace trireme::storage;

namespace {

void write(MemoryDisk& disk, const std::string& path, std::string_view content, bool sync) {
  std::unique_ptr<OpenFile> file;
  REQUIRE(disk.create(path, file) == 0);
  REQUIRE(file->write(content) == 0);
  if (sync) REQUIRE(file->sync() == 0);
  REQUIRE(file->close() == 0);
}

std::string read(MemoryDisk& disk, const std::string& path) {
  std::unique_ptr<OpenFile> file;
  if (int failure = disk.open(path, file)) return failure == ENOENT ? "absent" : "error";
  char buffer[64];
  std::size_t got = 0;
  REQUIRE(file->read(buffer, sizeof buffer, got) == 0);
  return {buffer, got};
}

void sync_folder(MemoryDisk& disk, const std::string& path) {
  std::unique_ptr<OpenFolder> folder;
  REQUIRE(disk.open_folder(path, folder) == 0);
  REQUIRE(folder->sync() == 0);
}

// The possible contents of a file after a crash.
std::set<std::string> fates(const MemoryDisk& disk, const std::string& path) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) seen.insert(read(*disk.after_crash(seed), path));
  return seen;
}

}  // namespace

TEST_CASE("content survives a crash once the file is synced, its name once the folder is") {
  MemoryDisk disk;
  write(disk, "/nothing", "0123456789", false);
  CHECK(fates(disk, "/nothing").size() > 10);  // missing, or torn in many ways
  CHECK(fates(disk, "/nothing").contains("absent"));
  CHECK(fates(disk, "/nothing").contains("0123456789"));

  write(disk, "/content", "0123456789", true);
  CHECK(fates(disk, "/content") == std::set<std::string>{"absent", "0123456789"});

  write(disk, "/name", "0123456789", false);
  sync_folder(disk, "/");
  CHECK_FALSE(fates(disk, "/name").contains("absent"));
  CHECK(fates(disk, "/name").contains(""));
  CHECK(fates(disk, "/content") == std::set<std::string>{"0123456789"});
}

TEST_CASE("a rename is atomic, and durable once the destination folder is synced") {
  MemoryDisk disk;
  REQUIRE(disk.make_folder("/a") == 0);
  REQUIRE(disk.make_folder("/b") == 0);
  write(disk, "/a/old", "old", true);
  write(disk, "/b/new", "new", true);
  for (const char* folder : {"/", "/a", "/b"}) sync_folder(disk, folder);
  REQUIRE(disk.rename("/b/new", "/a/old") == 0);
  CHECK(read(disk, "/a/old") == "new");
  std::set<std::pair<std::string, std::string>> seen;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto after = disk.after_crash(seed);
    seen.insert({read(*after, "/a/old"), read(*after, "/b/new")});
  }
  CHECK(seen == std::set<std::pair<std::string, std::string>>{{"old", "new"}, {"new", "absent"}});
  sync_folder(disk, "/a");
  CHECK(fates(disk, "/a/old") == std::set<std::string>{"new"});
  CHECK(fates(disk, "/b/new") == std::set<std::string>{"absent"});
}

TEST_CASE("changes of one name are lost in reverse order") {
  MemoryDisk disk;
  write(disk, "/x", "1", true);
  sync_folder(disk, "/");
  REQUIRE(disk.remove_file("/x") == 0);
  write(disk, "/x", "2", true);
  sync_folder(disk, "/");
  CHECK(fates(disk, "/x") == std::set<std::string>{"2"});
}

TEST_CASE("sync_all() makes everything durable") {
  MemoryDisk disk;
  std::unique_ptr<OpenFolder> root;
  REQUIRE(disk.open_folder("/", root) == 0);
  REQUIRE(disk.make_folder("/a") == 0);
  write(disk, "/a/b", "content", false);
  REQUIRE(root->sync_all() == 0);
  CHECK(fates(disk, "/a/b") == std::set<std::string>{"content"});
}

TEST_CASE("fails and crashes at the given operations") {
  MemoryDisk disk;
  disk.fail_at(1, ENOSPC, 2);
  CHECK(disk.make_folder("/a") == 0);
  CHECK(disk.make_folder("/b") == ENOSPC);
  CHECK(disk.make_folder("/b") == ENOSPC);
  CHECK(disk.make_folder("/b") == 0);
  CHECK(disk.operations() == 4);
  CHECK(disk.history()[0] == "make folder /a");
  std::unique_ptr<OpenFile> file;
  REQUIRE(disk.create("/b/half", file) == 0);
  disk.fail_at(disk.operations(), ENOSPC);
  CHECK(file->write("123456") == ENOSPC);
  CHECK(read(disk, "/b/half") == "123");
  disk.crash_at(disk.operations());
  CHECK(disk.make_folder("/c") == EIO);
  Status status;
  CHECK(disk.look("/a", status) == EIO);
  CHECK(file->write("x") == EIO);
}

TEST_CASE("returns the errors of POSIX") {
  MemoryDisk disk;
  std::unique_ptr<OpenFile> file;
  std::unique_ptr<OpenFolder> folder;
  std::vector<std::string> names;
  write(disk, "/file", "x", true);
  REQUIRE(disk.make_folder("/folder") == 0);
  write(disk, "/folder/below", "", true);
  CHECK(disk.open("/absent", file) == ENOENT);
  CHECK(disk.open("/folder", file) == EISDIR);
  CHECK(disk.create("/file", file) == EEXIST);
  CHECK(disk.create("/absent/file", file) == ENOENT);
  CHECK(disk.create("/file/below", file) == ENOTDIR);
  CHECK(disk.open_folder("/file", folder) == ENOTDIR);
  CHECK(disk.make_folder("/folder") == EEXIST);
  CHECK(disk.remove_folder("/folder") == ENOTEMPTY);
  CHECK(disk.remove_folder("/file") == ENOTDIR);
  CHECK(disk.remove_file("/folder") == EISDIR);
  CHECK(disk.remove_file("/absent") == ENOENT);
  CHECK(disk.rename("/absent", "/b") == ENOENT);
  CHECK(disk.rename("/file", "/folder") == EISDIR);
  CHECK(disk.rename("/folder", "/file") == ENOTDIR);
  REQUIRE(disk.make_folder("/other") == 0);
  CHECK(disk.rename("/other", "/folder") == ENOTEMPTY);
  CHECK(disk.rename("/folder", "/other") == 0);
  CHECK(disk.link("/file", "/other/below") == EEXIST);
  CHECK(disk.link("/absent", "/other/b") == ENOENT);
  CHECK(disk.link("/file", "/other/second") == 0);
  CHECK(disk.remove_file("/file") == 0);
  CHECK(read(disk, "/other/second") == "x");
  CHECK(disk.list("/other", names) == 0);
  CHECK(names == std::vector<std::string>{"below", "second"});
}

}  // namespace memory_disk_test
