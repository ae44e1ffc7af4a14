#include "storage/local_files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <thread>

#include "storage/digest.h"
#include "unit/storage/memory_disk.h"
#include "unit/temp_dir.h"

namespace local_files_test {

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

std::string message(const auto& result) {
  REQUIRE_FALSE(result);
  return result.error().message();
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("files are written atomically and read back") {
  TempDir dir;
  const std::string path = dir / "file";
  const std::string large(3 << 20, 'x');
  for (const std::string& content : {std::string("first"), std::string(), std::string("\0\xff", 2), large}) {
    REQUIRE(write_file_atomically(path, content));
    auto back = read_file(path);
    REQUIRE(back);
    CHECK((*back == content));
  }
  CHECK(names(dir.path()) == Names{"file"});  // no temporary file is left
}

TEST_CASE("a reader sees the old or the new content with several writers") {
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
  CHECK(make_folder(dir / "file").error().message().find("a file with this name exists") != std::string::npos);
  CHECK_FALSE(make_folder(dir / "file/below"));
  CHECK_FALSE(list_files(dir / "absent"));
  CHECK_FALSE(LocalFiles().put_folder(dir / "absent", dir / "copy", Take::kCopy));
  CHECK_FALSE(sync_folder(dir / "absent"));
  CHECK_FALSE(sync_folder(dir / "file"));
  // A folder has this name: no temporary file is left.
  REQUIRE(make_folder(dir / "folder/full"));
  CHECK_FALSE(write_file_atomically(dir / "folder", ""));
  CHECK(names(dir.path()) == Names{"file"});
}

TEST_CASE("folders are created with their parents, and again") {
  TempDir dir;
  REQUIRE(make_folder(dir / "a/b/c"));
  REQUIRE(make_folder(dir / "a/b/c"));
  CHECK(fs::is_directory(dir / "a/b/c"));
  REQUIRE(remove_folder(dir / "a"));
  REQUIRE(remove_folder(dir / "a"));
  CHECK_FALSE(fs::exists(dir / "a"));
  REQUIRE(make_folder(dir / "a/b/"));
  fs::create_symlink(dir / "nowhere", dir / "dangling");
  CHECK(contains(message(make_folder(dir / "dangling")), "a file with this name exists"));
}

TEST_CASE("removing a link keeps its target") {
  TempDir dir;
  append_file(dir / "elsewhere/file", "x");
  REQUIRE(make_folder(dir / "folder"));
  fs::create_directory_symlink(dir / "elsewhere", dir / "folder/link");
  REQUIRE(remove_folder(dir / "folder"));
  CHECK(fs::exists(dir / "elsewhere/file"));
}

TEST_CASE("files are listed by path, without folders") {
  TempDir dir;
  append_file(dir / "b/deep/er.txt", "123");
  append_file(dir / "a", "");
  append_file(dir / "b.txt", "1");
  append_file(dir / ".hidden", "1");
  REQUIRE(make_folder(dir / "empty"));
  CHECK(names(dir.path()) == Names{".hidden", "a", "b.txt", "b/deep/er.txt"});
  CHECK((*list_files(dir.path()))[3].size == 3);
}

TEST_CASE("copying into a folder keeps its other files") {
  TempDir dir;
  append_file(dir / "from/model/weights.bin", std::string(2 << 20, 'w'));
  append_file(dir / "from/empty", "");
  append_file(dir / "from/both", "new");
  append_file(dir / "to/both", "old and longer");
  append_file(dir / "to/own", "stays");
  REQUIRE(LocalFiles().put_folder(dir / "from", dir / "to", Take::kCopy));
  CHECK(names(dir / "to") == Names{"both", "empty", "model/weights.bin", "own"});
  CHECK(*read_file(dir / "to/both") == "new");
  CHECK((*read_file(dir / "to/model/weights.bin") == std::string(2 << 20, 'w')));
}

TEST_CASE("put_folder() returns the checksum of every file") {
  TempDir dir;
  LocalFiles files;
  append_file(dir / "from/model/weights.bin", std::string(5 << 20, 'w'));
  append_file(dir / "from/empty", "");
  append_file(dir / "from/.metadata.json", "{}");
  append_file(dir / "from/.trireme_manifest.json", "of the checkpoint that it was made from");
  REQUIRE(make_folder(dir / "from/empty_folder/below"));
  append_file(dir / "to/own", "stays");
  auto records = files.put_folder(dir / "from", dir / "to", Take::kCopy);
  REQUIRE(records);
  CHECK(*records == std::vector<FileRecord>{{".metadata.json", 2, digest_of("{}")},
                                            {"empty", 0, digest_of("")},
                                            {"model/weights.bin", 5 << 20, digest_of(std::string(5 << 20, 'w'))}});
  CHECK(names(dir / "to") == Names{".metadata.json", "empty", "model/weights.bin", "own"});
  CHECK_FALSE(fs::exists(dir / "to/empty_folder"));
  CHECK(fs::exists(dir / "from/empty"));
  // Adopted in place.
  CHECK(files.put_folder(dir / "from", dir / "from", Take::kMove).value() == *records);
  CHECK(files.put_folder((dir / "from") + "/model/..", dir / "from", Take::kMove).value() == *records);
  CHECK(files.adopt_folder(dir / "from").value() == *records);
  CHECK(files.checksum(dir / "to/empty").value() == digest_of(""));
}

TEST_CASE("more files than are synced individually") {
  TempDir dir;
  LocalFiles files;
  for (int i = 0; i < 300; ++i) append_file(dir / fmt::format("from/{}/{}", i % 100, i), std::to_string(i));
  auto records = files.put_folder(dir / "from", dir / "to", Take::kCopy);
  REQUIRE(records);
  CHECK(records->size() == 300);
  CHECK(names(dir / "to") == names(dir / "from"));
  CHECK(read_file(dir / "to/99/299").value() == "299");
  CHECK(files.adopt_folder(dir / "to").value() == *records);
  CHECK(files.put_folder(dir / "from", dir / "moved", Take::kMove).value() == *records);
  CHECK(names(dir / "moved") == names(dir / "to"));
  CHECK(names(dir / "from").empty());
}

TEST_CASE("files are moved unless they are shared") {
  TempDir dir;
  LocalFiles files;
  append_file(dir / "from/plain", "plain");
  append_file(dir / "from/shared", "shared");
  append_file(dir / "elsewhere/linked", "linked");
  fs::create_hard_link(dir / "from/shared", dir / "second_name");
  fs::create_symlink(dir / "elsewhere/linked", dir / "from/link");
  fs::create_directory_symlink(dir / "elsewhere", dir / "from/folder");
  struct stat before {};
  REQUIRE(::stat((dir / "from/plain").c_str(), &before) == 0);
  auto records = files.put_folder(dir / "from", dir / "to", Take::kMove);
  REQUIRE(records);
  CHECK(names(dir / "to") == Names{"folder/linked", "link", "plain", "shared"});
  struct stat after {};
  REQUIRE(::stat((dir / "to/plain").c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK_FALSE(fs::exists(dir / "from/plain"));
  append_file(dir / "second_name", " and changed");
  append_file(dir / "elsewhere/linked", " and changed");
  CHECK(read_file(dir / "to/shared").value() == "shared");
  CHECK(read_file(dir / "to/link").value() == "linked");
  CHECK(read_file(dir / "to/folder/linked").value() == "linked");
}

TEST_CASE("links are followed, and files that cannot be stored are named") {
  TempDir dir;
  LocalFiles files;
  auto refusal = [&](const std::string& source) {
    auto text = message(files.put_folder(source, dir / "to", Take::kCopy));
    CHECK(names(dir / "to").empty());
    return text;
  };
  append_file(dir / "loop/below/file", "x");
  fs::create_directory_symlink(dir / "loop", dir / "loop/below/up");
  CHECK(refusal(dir / "loop") ==
        (dir / "loop/below/up") + " is a symbolic link to a folder that contains it; remove the link");
  append_file(dir / "self/file", "x");
  fs::create_symlink("self", dir / "self/self");
  CHECK(refusal(dir / "self") == (dir / "self/self") + " is a symbolic link to itself; remove the link");
  append_file(dir / "dangling/file", "x");
  fs::create_symlink(dir / "nowhere", dir / "dangling/link");
  CHECK(refusal(dir / "dangling") ==
        (dir / "dangling/link") + " is a symbolic link to a missing file; remove the link");
  append_file(dir / "pipe/file", "x");
  REQUIRE(::mkfifo((dir / "pipe/fifo").c_str(), 0600) == 0);
  CHECK(refusal(dir / "pipe") ==
        (dir / "pipe/fifo") + " is a socket, pipe or device and cannot be stored; remove it from the folder");
  append_file(dir / "outer/file", "x");
  CHECK(contains(message(files.put_folder(dir / "outer", dir / "outer/run/to", Take::kCopy)),
                 "outer/run/to, the folder it would be stored in"));
  CHECK(contains(message(files.put_folder(dir / "loop/below/file", dir / "x", Take::kCopy)), "is not a folder"));
  // A listing skips them.
  CHECK(names(dir / "loop") == Names{"below/file"});
  CHECK(names(dir / "dangling") == Names{"file"});
  CHECK(names(dir / "pipe") == Names{"file"});

  append_file(dir / "good/a", "a");
  fs::create_directory_symlink(dir / "loop/below", dir / "good/link");
  fs::remove(dir / "loop/below/up");
  REQUIRE(files.put_folder(dir / "good", dir / "to", Take::kCopy));
  CHECK(names(dir / "to") == Names{"a", "link/file"});
  CHECK_FALSE(fs::is_symlink(dir / "to/link"));
}

TEST_CASE("unreadable files are named") {
  if (::geteuid() == 0) return;  // root may read everything
  TempDir dir;
  LocalFiles files;
  append_file(dir / "from/secret", "x");
  fs::permissions(dir / "from/secret", fs::perms::none);
  CHECK(contains(message(files.put_folder(dir / "from", dir / "to", Take::kCopy)), "from/secret: Permission denied"));
}

TEST_CASE("get_folder() copies a folder and names files that differ") {
  TempDir dir;
  LocalFiles files;
  append_file(dir / "from/deep/a", "aaaa");
  append_file(dir / "from/b", "b");
  append_file(dir / "from/extra", "not asked for");
  auto get = [&](FileRecord wanted) { return files.get_folder(dir / "from", {{"b", 1, ""}, wanted}, dir / "to"); };
  const std::string path = dir / "from/deep/a";
  CHECK(message(get({"deep/a", 3, ""})) == path + " is damaged: it has 4 bytes, but its manifest lists 3");
  CHECK(message(get({"deep/a", 4, digest_of("aaab")})) ==
        path + " is damaged: its XXH3 is " + digest_of("aaaa") + ", but its manifest lists " + digest_of("aaab"));
  CHECK(message(get({"absent", 4, ""})) == (dir / "from") + " is damaged: absent is missing");
  CHECK(contains(message(get({"../from/b", 1, ""})), "'../from/b' is not a relative path inside"));
  CHECK(names(dir / "to").empty());
  REQUIRE(get({"deep/a", 4, digest_of("aaaa")}));
  CHECK(names(dir / "to") == Names{"b", "deep/a"});
}

TEST_CASE("a folder is moved atomically, and never onto another") {
  TempDir dir;
  LocalFiles files;
  append_file(dir / "a/file", "x");
  append_file(dir / "full/file", "y");
  CHECK_FALSE(files.move_folder(dir / "a", dir / "full").value());
  CHECK_FALSE(files.move_folder(dir / "absent", dir / "b").value());
  CHECK(files.move_folder(dir / "a", dir / "new/b").value());
  CHECK(names(dir.path()) == Names{"full/file", "new/b/file"});
  CHECK(files.list_folders(dir.path()).value() == Names{"full", "new"});
  CHECK_FALSE(files.exists(dir / "a").value());
  CHECK_FALSE(files.exists(dir / "full/file/below").value());
  CHECK(files.exists(dir / "full").value());
  CHECK_FALSE(files.list_folders(dir / "a"));
}

TEST_CASE("the error for a full disk has the file, its size and a solution") {
  auto disk = std::make_shared<MemoryDisk>();
  LocalFiles files(disk);
  REQUIRE(files.make_folder("/from"));
  REQUIRE(files.write_atomically("/from/model.pt", std::string(2500000, 'x')));
  const auto count = disk->operations();
  REQUIRE(files.put_folder("/from", "/to", Take::kCopy));
  const auto history = disk->history();
  std::size_t at = count;
  while (!history[at].starts_with("write ")) ++at;
  disk->fail_at(disk->operations() + at - count, ENOSPC);
  CHECK(message(files.put_folder("/from", "/to2", Take::kCopy)) ==
        "could not store 'model.pt' (2.5 MB) as /to2/model.pt: No space left on device (errno 28); free space there or "
        "choose another storage_path");
  CHECK(files.list_files("/to2").value().empty());
  disk->fail_at(disk->operations(), EROFS, 1000);
  CHECK(contains(message(files.write_atomically("/a", "")), "it is read-only: choose another storage_path"));
}

TEST_CASE("a file that is removed or changed while it is being stored is an error") {
  // A disk on which another process works when a file is opened.
  class Busy final : public Disk {
   public:
    std::function<void(const std::string&)> meanwhile = [](const std::string&) {};
    MemoryDisk disk;

    int open(const std::string& path, std::unique_ptr<OpenFile>& file) override {
      meanwhile(path);
      return disk.open(path, file);
    }
    int create(const std::string& path, std::unique_ptr<OpenFile>& file) override { return disk.create(path, file); }
    int open_folder(const std::string& path, std::unique_ptr<OpenFolder>& folder) override {
      return disk.open_folder(path, folder);
    }
    int rename(const std::string& from, const std::string& to) override { return disk.rename(from, to); }
    int link(const std::string& from, const std::string& to) override { return disk.link(from, to); }
    int remove_file(const std::string& path) override { return disk.remove_file(path); }
    int make_folder(const std::string& path) override { return disk.make_folder(path); }
    int remove_folder(const std::string& path) override { return disk.remove_folder(path); }
    int list(const std::string& folder, std::vector<std::string>& found) override { return disk.list(folder, found); }
    int look(const std::string& path, Status& status) override { return disk.look(path, status); }
    int look_through(const std::string& path, Status& status) override { return disk.look_through(path, status); }
  };
  auto busy = std::make_shared<Busy>();
  LocalFiles files(busy);
  REQUIRE(files.make_folder("/from"));
  for (auto take : {Take::kCopy, Take::kMove}) {
    REQUIRE(files.write_atomically("/from/a", "aaaa"));
    REQUIRE(files.write_atomically("/from/b", "bbbb"));
    busy->meanwhile = [&](const std::string&) { (void)busy->disk.remove_file("/from/b"); };
    CHECK(message(files.put_folder("/from", "/to", take)) ==
          "/from/b was removed while it was being stored; keep the folder until report() returns, or with ASYNC until "
          "the "
          "upload is done");
    CHECK(files.list_files("/to").value().empty());
    CHECK(files.list_files("/from").value().size() == 1);
  }
  REQUIRE(files.write_atomically("/from/b", "bbbb"));
  busy->meanwhile = [&](const std::string& path) {
    if (path == "/from/b") REQUIRE(files.write_atomically("/from/b", "longer"));
  };
  CHECK(message(files.put_folder("/from", "/to", Take::kCopy)) ==
        "/from/b changed while it was being stored: its size was 4 bytes and is now 6 bytes; write all files before "
        "report()");
  CHECK(files.list_files("/to").value().empty());
}

}  // namespace local_files_test
