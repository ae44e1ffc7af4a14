#include "control/memory_tier.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "storage/local_files.h"
#include "unit/engine/testing.h"

namespace memory_tier_test {

using namespace trireme;
using trireme::control::MemoryTier;

namespace {

// Another process that holds anonymous memory.
class Holder {
 public:
  explicit Holder(const std::string& content) {
    int told[2];
    REQUIRE(::pipe(told) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const int memory = ::memfd_create("snapshot", 0);
      if (::write(memory, content.data(), content.size()) < 0 || ::write(told[1], &memory, sizeof memory) < 0)
        ::_exit(1);
      while (true) ::pause();
    }
    ::close(told[1]);
    const auto got = ::read(told[0], &descriptor_, sizeof descriptor_);
    ::close(told[0]);
    REQUIRE(got == sizeof descriptor_);
  }
  ~Holder() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  int pid() const { return pid_; }
  int descriptor() const { return descriptor_; }

 private:
  int pid_ = -1;
  int descriptor_ = -1;
};

std::string read_through(const Dict& files, const std::string& path) {
  auto text = storage::read_file(files.at(path).as_string());
  REQUIRE(text);
  return *std::move(text);
}

}  // namespace

TEST_CASE("files in a worker's memory outlive it") {
  MemoryTier tier;
  Holder worker("the state");
  tier.hold(4, worker.pid(), {{"state.safetensors", worker.descriptor()}});
  CHECK(tier.files(4).empty());  // not committed: cannot be resumed from
  tier.committed(4);
  worker.end();
  const Dict files = tier.files(4);
  REQUIRE(files.size() == 1);
  CHECK(files.at("state.safetensors").as_string().starts_with("/proc/" + std::to_string(::getpid()) + "/fd/"));
  CHECK(read_through(files, "state.safetensors") == "the state");
}

TEST_CASE("the parts of several workers form one checkpoint") {
  MemoryTier tier;
  Holder first("first");
  Holder second("second");
  tier.hold(0, first.pid(), {{"state.json", first.descriptor()}});
  tier.hold(0, second.pid(), {{"rank_1/state.json", second.descriptor()}});
  tier.committed(0);
  const Dict files = tier.files(0);
  CHECK(read_through(files, "state.json") == "first");
  CHECK(read_through(files, "rank_1/state.json") == "second");
}

TEST_CASE("only the newest committed one is kept") {
  MemoryTier tier;
  Holder worker("x");
  const Dict memory{{"state.json", worker.descriptor()}};
  const std::size_t before = engine::testing::open_descriptors();
  for (int index : {0, 1, 2}) tier.hold(index, worker.pid(), memory);
  CHECK(engine::testing::open_descriptors() == before + 3);
  tier.committed(1);
  CHECK(engine::testing::open_descriptors() == before + 2);
  CHECK(tier.files(0).empty());
  CHECK(tier.files(1).size() == 1);
  // The attempt is over: 2 will never be committed.
  tier.forget_uncommitted();
  CHECK(engine::testing::open_descriptors() == before + 1);
  CHECK(tier.files(1).size() == 1);
  CHECK(tier.files(2).empty());
  // A checkpoint that is not in memory is committed: the held one is out of date.
  tier.committed(5);
  CHECK(engine::testing::open_descriptors() == before);
  CHECK(tier.files(1).empty());
  CHECK(tier.files(5).empty());
}

TEST_CASE("files that cannot be opened are skipped") {
  MemoryTier tier;
  Holder worker("x");
  tier.hold(0, worker.pid(), {{"a", 999}, {"b", "text"}, {"c", nullptr}, {"d", worker.descriptor()}});
  const int pid = worker.pid();
  worker.end();
  tier.hold(0, pid, {{"e", worker.descriptor()}});
  tier.committed(0);
  const Dict files = tier.files(0);
  CHECK(files.size() == 1);
  CHECK(files.contains("d"));
}

}  // namespace memory_tier_test
