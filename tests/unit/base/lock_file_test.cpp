#include "base/lock_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "unit/temp_dir.h"

namespace lock_file_test {

using namespace trireme::base;
using trireme::tests::TempDir;

namespace {

LockFile open_lock(const std::string& path) { return LockFile(Fd(::open(path.c_str(), O_RDWR | O_CREAT, 0600))); }

bool is_free(const std::string& path) { return open_lock(path).lock(LOCK_EX | LOCK_NB); }

// A child that runs until it is killed, like one that a training script forks.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  const int pid_;
};

}  // namespace

TEST_CASE("a child forked while the lock is held does not keep it") {
  TempDir dir;
  const std::string path = dir / "lock";
  SUBCASE("when the lock is released") {
    LockFile file = open_lock(path);
    REQUIRE(file.lock(LOCK_EX | LOCK_NB));
    const Child child;
    CHECK_FALSE(is_free(path));
    file.reset();
    CHECK(is_free(path));
  }
  SUBCASE("when its process is killed") {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const int holder = ::fork();
    if (holder == 0) {
      LockFile file = open_lock(path);
      const bool locked = file.lock(LOCK_EX | LOCK_NB);
      // The grandchild reports itself: when fork() has returned there, it has closed the lock.
      if (::fork() == 0) {
        const int told = locked ? ::getpid() : -1;
        (void)!::write(ready[1], &told, sizeof told);
      }
      ::pause();
      ::_exit(0);
    }
    int grandchild = 0;
    REQUIRE(::read(ready[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    REQUIRE(grandchild > 0);
    CHECK_FALSE(is_free(path));
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    CHECK(is_free(path));
    ::kill(grandchild, SIGKILL);
    ::close(ready[0]);
    ::close(ready[1]);
  }
}

TEST_CASE("a forked copy neither unlocks nor closes the file of its parent") {
  TempDir dir;
  const std::string path = dir / "lock";
  LockFile file = open_lock(path);
  REQUIRE(file.lock(LOCK_EX | LOCK_NB));
  const int child = ::fork();
  if (child == 0) {
    const int number = file.get();
    const int reused = ::dup2(STDERR_FILENO, number);
    const bool copy_is_none = !file.valid();
    file.reset();
    const bool open = ::fcntl(reused, F_GETFD) >= 0;
    ::_exit(copy_is_none && open ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(file.valid());
  CHECK_FALSE(is_free(path));
}

TEST_CASE("a lock moves with its owner") {
  TempDir dir;
  const std::string path = dir / "lock";
  LockFile first = open_lock(path);
  REQUIRE(first.lock(LOCK_EX | LOCK_NB));
  LockFile second = std::move(first);
  CHECK_FALSE(first.valid());
  CHECK(second.valid());
  CHECK_FALSE(is_free(path));
  second = open_lock(dir / "other");
  CHECK(is_free(path));
}

}  // namespace lock_file_test
